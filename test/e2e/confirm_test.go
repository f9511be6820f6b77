package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// outlived checks the events of an object that outlived its published delete. The last two events
// must be that delete and a create with the same version, and only deletes may share an id.
// Consistent reads must have been rare.
func (f *forwarder) outlived(all []harness.Received) {
	f.t.Helper()
	gone, back := all[len(all)-2], all[len(all)-1]
	if gone.Attributes["resourceversion"] != back.Attributes["resourceversion"] || back.Attributes["previousversion"] != gone.Attributes["resourceversion"] {
		f.t.Errorf("the delete is of version %s, the create after it of %s, previousversion %s; want the same",
			gone.Attributes["resourceversion"], back.Attributes["resourceversion"], back.Attributes["previousversion"])
	}
	seen := map[string]bool{}
	for _, m := range all {
		if id := m.Attributes["id"]; seen[id] && m.Kind() != "deleted" {
			f.t.Errorf("the id %s is there twice", id)
		} else {
			seen[id] = true
		}
	}
	f.verifyClean()
	f.undecided(20)
}

// undecided checks the number of decisions that needed a consistent read. While nothing changes, each resync
// needs at most one, and there is a resync every second. So the bound is the number of seconds since the
// start of the forwarder, or most if that is greater.
func (f *forwarder) undecided(most int) {
	f.t.Helper()
	most = max(most, int(time.Since(time.Unix(int64(f.metric("process_start_time_seconds")), 0)).Seconds()))
	_, body, err := f.get(f.t.Context(), "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(body) {
		var count int
		for _, reason := range []string{"stale", "denied"} {
			if _, err := fmt.Sscanf(line, `kuberelay_decisions_total{reason="`+reason+`"} %d`, &count); err == nil {
				n += count
			}
		}
	}
	if n > most {
		f.t.Errorf("%d decisions needed a consistent read, or found that the watch is behind; want at most %d", n, most)
	}
}

// TestASelectorIsWidened_Slow verifies that an object can return in the version of its delete. The object
// leaves a label selector, and its delete has the version of that change. After the selector is
// widened, the object exists in the same version.
func TestASelectorIsWidened_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		ns := controlplanetest.Namespace(t, cp)
		u.create(configMaps, ns, configMap("a", "1"))
		u.label(configMaps, ns, "a", "x")
		set := map[string]string{"RESOURCES": "cm", "NAMESPACES": ns, "LABEL_SELECTOR": "changed"}
		f := bus.forwarder(cp.Kubeconfig(), set)
		f.start().idle()
		k := key("configmaps", ns, "a")
		poll.Try(t, "it leaves the selector", func(ctx context.Context) error {
			_, err := u.of(configMaps, ns).Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":null}}}`), metav1.PatchOptions{})
			return err
		})
		bus.awaitKinds(k, "snapshot deleted")
		f.stop()

		wide := maps.Clone(set)
		delete(wide, "LABEL_SELECTOR")
		wide["CHECKPOINT_REFRESH"], wide["RESYNC_PERIOD"] = "1s", "1s"
		f = bus.forwarder(cp.Kubeconfig(), wide)
		f.start().idle()
		f.outlived(bus.awaitKinds(k, "snapshot deleted created"))

		// Later changes are published as usual.
		u.label(configMaps, ns, "a", "y")
		bus.awaitKinds(k, "snapshot deleted created updated")
		u.delete(configMaps, ns, "a")
		bus.awaitKinds(k, "snapshot deleted created updated deleted")
		f.verifyClean()
	})
}

// TestADefinitionLosesItsFinalizer_Slow verifies that objects can return with the UIDs and versions of
// their inferred deletes. If someone removes the finalizer of a CustomResourceDefinition, its
// objects stay in etcd. They exist again when the definition is applied again.
func TestADefinitionLosesItsFinalizer_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		ns := controlplanetest.Namespace(t, cp)
		u.define("widgets", "Widget", "Namespaced")
		u.create(widgets, ns, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, finalizers: [example.com/hold]}\nspec: {a: 1}")
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "widgets.example.com", "NAMESPACES": ns, "CHECKPOINT_REFRESH": "1s", "RESYNC_PERIOD": "1s"})
		f.start().idle()
		k := strings.Replace(key("widgets", ns, "w"), "/core/", "/example.com/", 1)
		bus.awaitKinds(k, "snapshot")
		if err := u.of(definitions, "").Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		bus.awaitKinds(k, "snapshot updated") // it is being deleted, but its finalizer keeps it
		poll.Try(t, "the definition's finalizer is removed", func(ctx context.Context) error {
			_, err := u.of(definitions, "").Patch(ctx, "widgets.example.com", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		})
		bus.awaitKinds(k, "snapshot updated deleted")
		poll.Try(t, "the definition is gone", func(ctx context.Context) error {
			_, err := u.of(definitions, "").Get(ctx, "widgets.example.com", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is still there: %w", err)
		})
		u.define("widgets", "Widget", "Namespaced")
		all := bus.awaitKinds(k, "snapshot updated deleted created")
		if gone, back := all[2].Attributes["uid"], all[3].Attributes["uid"]; gone != back {
			t.Fatalf("uid %s was deleted and %s is there; want one object", gone, back)
		}
		f.outlived(all)
		poll.Try(t, "its own finalizer is removed", func(ctx context.Context) error {
			_, err := u.of(widgets, ns).Patch(ctx, "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		})
		bus.awaitKinds(k, "snapshot updated deleted created deleted")
		f.verifyClean()
		u.delete(definitions, "", "widgets.example.com") // the subtest on the other bus defines it again
	})
}

// TestAForgedDelete verifies that the forwarder corrects a forged delete. A foreign writer publishes
// a delete of an existing object with the object's current version, and repeats it after the
// correction.
func TestAForgedDelete(t *testing.T) {
	server := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	ns := controlplanetest.Namespace(t, cp)
	u.create(configMaps, ns, configMap("a", "1"))
	f := newForwarder(t, cp.Kubeconfig(), server.URL, map[string]string{"RESOURCES": "cm", "NAMESPACES": ns, "CHECKPOINT_REFRESH": "1s", "RESYNC_PERIOD": "1s"})
	f.start().idle()
	sub := subscribe(t, server.URL)
	s := subject(configMaps, ns, "a")
	sub.awaitKinds(s, "snapshot")

	nc, err := natsgo.Connect(server.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	want := "snapshot"
	for range 2 {
		all := sub.of(s)
		last := all[len(all)-1]
		m := natsgo.NewMsg(s)
		m.Data = last.data
		for _, name := range []string{"source", "specversion", "subject", "time", "datacontenttype", "partitionkey", "sequence", "apiversion", "kind", "namespace", "name", "uid", "resourceversion", "cause"} {
			m.Header.Set("ce-"+name, last.attribute(name))
		}
		m.Header.Set("ce-type", "io.kuberelay.object.deleted")
		m.Header.Set("ce-id", last.attribute("uid")+".deleted")
		m.Header.Set("ce-previousversion", last.attribute("resourceversion"))
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		want += " deleted created"
		sub.awaitKinds(s, want)
	}
	u.label(configMaps, ns, "a", "x")
	sub.awaitKinds(s, want+" updated")
	if others, foreign := f.problems(); len(others) > 0 || foreign != 2 {
		t.Errorf("verify finds %q and %d foreign events, want only 2 foreign events", others, foreign)
	}
	f.undecided(30)
}
