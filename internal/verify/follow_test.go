package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

func labelSelector(t *testing.T, s string) labels.Selector {
	t.Helper()
	l, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFollowed: of a resource that is not selected, exactly the objects that selected objects refer
// to, directly or through others, belong on the bus.
func TestFollowed(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	own := func(u, owner *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
	}
	top := w.create(accounts, "top", nil)
	middle := w.create(accounts, "middle", nil)
	middle = w.update(accounts, middle, func(u *unstructured.Unstructured) { own(u, top) })
	bottom := w.create(configMaps, "bottom", nil)
	bottom = w.update(configMaps, bottom, func(u *unstructured.Unstructured) { own(u, middle) })
	w.publish(event.Created, configMaps, bottom)
	w.publish(event.Created, accounts, w.create(accounts, "unrelated", nil))
	w.create(accounts, "not-on-the-bus", nil)
	want(t, w.found())

	w.opts.Follow = []string{"ownerReferences"}
	want(t, w.found(), "missing middle", "missing top", "extra unrelated")
	w.publish(event.Created, accounts, middle)
	w.publish(event.Created, accounts, top)
	want(t, w.found(), "extra unrelated")
	w.opts.Follow = []string{"serviceaccounts:ownerReferences"}
	want(t, w.found()) // nothing refers to any of them then, so that none is followed
}

// TestAnotherCluster: the claim on the bus names another cluster.
func TestAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	m, err := w.builder.ClusterClaimed(event.Claim{UID: "another", Claimed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.send(m); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(); err == nil || !strings.Contains(err.Error(), "belongs to another cluster on this bus") {
		t.Errorf("got %v", err)
	}
}

// TestOtherSettings: the report names the settings that differ from those in the claim, and nothing
// else of it depends on them. What only one of the two knows does not differ.
func TestOtherSettings(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	system, err := w.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uid := string(system.GetUID())
	ours := map[string]string{"KUBERELAY_NAMESPACES": "01", "KUBERELAY_FILTER": "02", "KUBERELAY_DATA": "03", "KUBERELAY_LATER": "04"}
	w.opts.Settings = func(salt string) map[string]string {
		if salt != uid {
			t.Errorf("the salt is %q", salt)
		}
		return ours
	}
	for _, c := range []struct {
		theirs map[string]string
		want   []string
	}{
		{nil, []string{}},
		{ours, []string{}},
		{map[string]string{"KUBERELAY_NAMESPACES": "11", "KUBERELAY_FILTER": "12", "KUBERELAY_DATA": "03", "KUBERELAY_EARLIER": "05"}, []string{"KUBERELAY_FILTER", "KUBERELAY_NAMESPACES"}},
	} {
		m, err := w.builder.ClusterClaimed(event.Claim{UID: uid, Claimed: time.Now(), Settings: c.theirs})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.send(m); err != nil {
			t.Fatal(err)
		}
		r, err := w.verify()
		if err != nil || !r.Clean() || !slices.Equal(r.Settings, c.want) {
			t.Errorf("with %v: got %v, %v, want %v", c.theirs, r.Settings, err, c.want)
		}
	}
}
