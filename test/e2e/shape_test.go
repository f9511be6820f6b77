package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

var nodes = gvr("", "v1", "nodes")

// set changes the data of a ConfigMap and returns the new object.
func (u *user) set(namespace, name string, data map[string]string) *unstructured.Unstructured {
	u.t.Helper()
	var fields []string
	for k, v := range data {
		fields = append(fields, fmt.Sprintf("%q:%q", k, v))
	}
	patch := `{"data":{` + strings.Join(fields, ",") + `}}`
	o, err := u.of(configMaps, namespace).Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return o
}

// nodeVersions returns the versions of all nodes, or an error if one isn't running.
func (u *user) nodeVersions(ctx context.Context) (map[string]string, error) {
	list, err := u.of(nodes, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, o := range list.Items {
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Running" {
			return nil, errors.New(o.GetName() + " is not running")
		}
		all[o.GetName()] = o.GetResourceVersion()
	}
	return all, nil
}

// awaitHeartbeats waits until every node is running and then has a new version.
func (u *user) awaitHeartbeats() {
	u.t.Helper()
	var before map[string]string
	poll.Try(u.t, "the nodes run", func(ctx context.Context) (err error) {
		before, err = u.nodeVersions(ctx)
		return err
	})
	poll.Try(u.t, "every node has a heartbeat", func(ctx context.Context) error {
		now, err := u.nodeVersions(ctx)
		if err != nil {
			return err
		}
		for name, version := range now {
			if before[name] == version {
				return errors.New(name + " has none yet")
			}
		}
		return nil
	})
}

// TestHeartbeatsAreNotSent_Slow verifies that heartbeats of 50 nodes cause no events, both while the
// forwarder runs and after a restart. Other changes of the nodes are published.
func TestHeartbeatsAreNotSent_Slow(t *testing.T) {
	const many = 50
	cp := controlplanetest.New(t, controlplane.Options{Kwok: true, Heartbeat: 2 * time.Second})
	u := newUser(t, cp)
	inParallel(t, many, func(n int) {
		u.create(nodes, "", fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: node-%d}", n))
	})
	u.awaitHeartbeats() // the first heartbeat may change more fields than the time
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		u.awaitHeartbeats()
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{
			"RESOURCES": "nodes", "DROP_FIELDS": "nodes:.status.conditions[*].lastHeartbeatTime",
		})
		f.start().idle()
		if n := bus.count(); n != many {
			t.Fatalf("%d events, want one of each node", n)
		}

		u.awaitHeartbeats()
		u.label(nodes, "", "node-7", t.Name()[len(t.Name())-4:])
		last := bus.awaitKinds(clusterName+"/core/nodes/_/node-7", "snapshot updated")[1]
		if got := last.Attributes["changed"]; got != "/metadata/labels" && got != "/metadata/labels/changed" {
			t.Errorf("changed is %q, want the label", got)
		}
		if strings.Contains(string(last.Data), "lastHeartbeatTime") || !strings.Contains(string(last.Data), "lastTransitionTime") {
			t.Errorf("the data are %s", last.Data)
		}
		u.awaitHeartbeats()
		poll.Try(t, "the forwarder has processed the heartbeats", func(ctx context.Context) error {
			got, err := f.Metric(ctx, `kuberelay_decisions_total\{reason="unchanged"\}`)
			if err == nil && got < many {
				err = fmt.Errorf("%v decisions, want %d at least", got, many)
			}
			return err
		})
		f.verifyClean()
		f.kill()
		u.awaitHeartbeats()
		f.start().idle()
		u.awaitHeartbeats()
		f.idle()
		f.verifyClean()
		if n := bus.count(); n != many+1 {
			t.Errorf("%d events, want those and the label's", n)
		}
		f.stop()
	})
}

// TestAFilter_Slow verifies the events of objects that start or stop matching the filter, both while the
// forwarder runs and while it is down. An object for which the expression fails is published.
func TestAFilter_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		phase := func(name, phase string) { u.set(namespace, name, map[string]string{"phase": phase}) }
		of := func(name string) string { return key("configmaps", namespace, name) }
		for _, name := range []string{"in", "out", "dies", "leaves"} {
			u.create(configMaps, namespace, configMap(name, "1"))
			phase(name, "Failed")
		}
		phase("out", "Running")
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "FILTER": `object.data.phase == "Failed"`,
		})
		f.start().idle()
		bus.awaitKinds(of("in"), "snapshot")
		bus.awaitKinds(of("kube-root-ca.crt"), "snapshot") // this ConfigMap has no phase, so the expression fails
		if got := f.metric("kuberelay_filter_errors_total"); got < 1 {
			t.Errorf("%v errors of the expression are counted, want 1 at least", got)
		}
		if log := f.log(); strings.Contains(log, "BEGIN CERTIFICATE") {
			t.Error("the log has the content of an object")
		}
		f.verifyClean()

		phase("out", "Failed")
		bus.awaitKinds(of("out"), "created")
		phase("in", "Running")
		all := bus.awaitKinds(of("in"), "snapshot deselected")
		if string(all[1].Data) != string(all[0].Data) {
			t.Errorf("deselected with %s, want the last state that matched: %s", all[1].Data, all[0].Data)
		}
		phase("in", "Failed")
		bus.awaitKinds(of("in"), "snapshot deselected created")
		u.label(configMaps, namespace, "in", "yes")
		bus.awaitKinds(of("in"), "snapshot deselected created updated")
		u.delete(configMaps, namespace, "dies")
		bus.awaitKinds(of("dies"), "snapshot deleted")
		f.verifyClean()

		f.kill()
		phase("leaves", "Running")
		phase("out", "Running")
		u.delete(configMaps, namespace, "out")
		u.create(configMaps, namespace, configMap("new", "1"))
		phase("new", "Failed")
		f.start().idle()
		bus.awaitKinds(of("leaves"), "snapshot deselected")
		bus.awaitKinds(of("out"), "created deleted")
		bus.awaitKinds(of("new"), "created")
		f.verifyClean()

		before := bus.count()
		u.set(namespace, "leaves", map[string]string{"value": "2"})
		u.delete(configMaps, namespace, "leaves")
		f.kill()
		f.start().idle()
		f.stop()
		if n := bus.count() - before; n != 0 {
			t.Errorf("%d events of unselected objects, or of a restart without a change", n)
		}
		for name, all := range bus.events() {
			for _, m := range all {
				if strings.Contains(string(m.Data), `"Running"`) {
					t.Errorf("%s: an object that doesn't match is on the bus: %s", name, m.Data)
				}
			}
		}
	})
}

// TestTheFilterChanges_Slow verifies that objects that a new filter doesn't select are deselected,
// exactly once.
func TestTheFilterChanges_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		of := func(name string) string { return key("configmaps", namespace, name) }
		for _, name := range []string{"a", "b"} {
			u.create(configMaps, namespace, configMap(name, name))
		}
		with := func(filter string) *forwarder {
			return bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "FILTER": filter})
		}
		f := with("")
		f.start().idle()
		bus.awaitKinds(of("a"), "snapshot")
		f.stop()
		for range 2 {
			f = with(`object.metadata.name != "a"`)
			f.start().idle()
			bus.awaitKinds(of("a"), "snapshot deselected")
			f.verifyClean()
			f.stop()
		}
		f = with(`resource.resource == "configmaps"`)
		f.start().idle()
		bus.awaitKinds(of("a"), "snapshot deselected created")
		f.verifyClean()
		f.stop()
		if got := kindsOf(bus.events()[of("b")]); got != "snapshot" {
			t.Errorf("an object that was always selected has %q", got)
		}
	})
}

// TestTheProjectionChanges_Slow verifies that objects whose published data a new projection changes are
// published again, exactly once.
func TestTheProjectionChanges_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		of := func(name string) string { return key("configmaps", namespace, name) }
		u.create(configMaps, namespace, configMap("plain", "1"))
		u.create(configMaps, namespace, configMap("noisy", "1"))
		u.set(namespace, "noisy", map[string]string{"noise": "1", "hum": "1"})
		with := func(drop string) *forwarder {
			f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "DROP_FIELDS": drop})
			f.start().idle()
			return f
		}
		want := "snapshot"
		for n, drop := range []string{"", "configmaps:.data.noise", "configmaps:.data.noise,*:.data.hum", "configmaps:.data.hum", ""} {
			if n > 0 {
				want += " updated"
			}
			for range 2 { // the second start publishes no event
				f := with(drop)
				all := bus.awaitKinds(of("noisy"), want)
				text := string(all[n].Data)
				if noise, hum := strings.Contains(text, "noise"), strings.Contains(text, "hum"); noise == strings.Contains(drop, "noise") || hum == strings.Contains(drop, "hum") {
					t.Errorf("with %q the data are %s", drop, text)
				}
				if digest := all[n].Attributes["digest"]; (len(digest) == 32) != (drop != "") {
					t.Errorf("with %q the digest is %q", drop, digest)
				}
				f.verifyClean()
				f.stop()
			}
		}
		for _, name := range []string{"plain", "kube-root-ca.crt"} {
			if got := kindsOf(bus.events()[of(name)]); got != "snapshot" {
				t.Errorf("%s, which the projection doesn't change, has %q", name, got)
			}
		}
		ids := map[string]bool{}
		for _, m := range bus.events()[of("noisy")] {
			if id := m.Attributes["id"]; ids[id] {
				t.Errorf("id %s is there twice", id)
			} else {
				ids[id] = true
			}
		}
	})
}

// TestChangedFields verifies that an event lists the changes since the previous event, even if the
// forwarder was down or several changes are combined.
func TestChangedFields(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		u.create(configMaps, namespace, configMap("a", "1"))
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "DATA": "change"})
		f.start().idle()
		of := key("configmaps", namespace, "a")
		changed := func(want, changed string) {
			t.Helper()
			all := bus.awaitKinds(of, want)
			last := all[len(all)-1]
			if got := last.Attributes["changed"]; got != changed {
				t.Errorf("changed is %q, want %q", got, changed)
			}
			checkChange(t, all)
		}
		changed("snapshot", "")
		u.set(namespace, "a", map[string]string{"value": "2", "more": "1"})
		changed("snapshot updated", "/data/more,/data/value")
		f.kill()
		u.set(namespace, "a", map[string]string{"value": "3"})
		u.set(namespace, "a", map[string]string{"more": "2"})
		f.start().idle()
		changed("snapshot updated updated", "/data/more,/data/value")
		u.delete(configMaps, namespace, "a")
		changed("snapshot updated updated deleted", "")
		f.verifyClean()
		f.stop()
	})
}

// checkChange verifies the data of an object's last event: the current state, the previous state,
// and the patch between them.
func checkChange(t *testing.T, all []harness.Received) {
	t.Helper()
	last := all[len(all)-1]
	data := decode(t, last.Data)
	if last.Attributes["dataschema"] == "" || data["object"] == nil {
		t.Fatalf("dataschema is %q, data are %s", last.Attributes["dataschema"], last.Data)
	}
	if last.Kind() != "updated" {
		if data["previous"] != nil || data["patch"] != nil {
			t.Errorf("%s with a state before: %s", last.Kind(), last.Data)
		}
		return
	}
	before := decode(t, all[len(all)-2].Data)
	if want, got := mustJSON(t, before["object"]), mustJSON(t, data["previous"]); want != got {
		t.Errorf("previous is %s, want %s", got, want)
	}
	patched := applyPatch(t, mustJSON(t, data["previous"]), mustJSON(t, data["patch"]))
	if want := mustJSON(t, data["object"]); patched != want {
		t.Errorf("the patch gives %s, want %s", patched, want)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// applyPatch applies an RFC 6902 patch and returns the result with sorted keys.
func applyPatch(t *testing.T, to, patch string) string {
	t.Helper()
	p, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	result, err := p.Apply([]byte(to))
	if err != nil {
		t.Fatalf("apply %s: %v", patch, err)
	}
	return mustJSON(t, decode(t, result))
}

// TestOwnersThroughAFilter verifies that an owner that the filter doesn't select isn't published,
// and that the chain of owners continues past it.
func TestOwnersThroughAFilter(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	templates := gvr("", "v1", "podtemplates")
	const pod = `{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`
	owner := func(kind, name string, uid types.UID) string {
		return fmt.Sprintf("[{apiVersion: v1, kind: %s, name: %s, uid: %s, controller: true}]", kind, name, uid)
	}
	top := u.create(configMaps, namespace, configMap("top", "1"))
	middle := u.create(templates, namespace, "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: middle, ownerReferences: "+owner("ConfigMap", "top", top.GetUID())+"}\ntemplate: "+pod)
	u.create(configMaps, namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bottom, ownerReferences: "+owner("PodTemplate", "middle", middle.GetUID())+"}")
	for name, filter := range map[string]string{"by its type": `resource.kind != "PodTemplate"`, "by its content": `object.metadata.name != "middle"`} {
		t.Run(name, func(t *testing.T) {
			f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
				"RESOURCES": "configmaps", "NAMESPACES": namespace, "FOLLOW": "ownerReferences", "FILTER": filter,
			})
			f.start().idle()
			sub := subscribe(t, bus.URL)
			bottom := subject(configMaps, namespace, "bottom")
			sub.awaitKinds(bottom, "snapshot")
			if got := sub.of(bottom)[0]; got.attribute("ownerkind") != "ConfigMap" || got.attribute("ownername") != "top" {
				t.Errorf("the top of its owners is %s %s", got.attribute("ownerkind"), got.attribute("ownername"))
			}
			if got := sub.kinds(subject(templates, namespace, "middle")); got != "" {
				t.Errorf("the owner that is not selected has %q", got)
			}
			f.verifyClean()
			f.stop()
		})
	}
}

// TestSecretsUnderAProjection verifies that Secrets are published with hashed values, encoded as
// Base64, and that the filter sees the hashes. Without a configured key, the hashes differ after
// each restart, but no event is published for that difference.
func TestSecretsUnderAProjection(t *testing.T) {
	secrets := gvr("", "v1", "secrets")
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		u.create(secrets, namespace, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, labels: {noise: a}}\ndata: {password: aHVudGVyMg==}")
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{
			"RESOURCES": "secrets", "NAMESPACES": namespace, "DROP_FIELDS": "*:.metadata.labels.noise",
			"FILTER": `object.data.password.startsWith("aG1hYy1zaGEyNTY6")`,
		})
		of := clusterName + "/core/secrets/" + namespace + "/s"
		for range 3 {
			f.start().idle()
			if m := bus.awaitKinds(of, "snapshot")[0]; strings.Contains(string(m.Data), "noise") || strings.Contains(string(m.Data), "aHVudGVyMg") {
				t.Errorf("the data are %s", m.Data)
			}
			if _, metrics, err := f.get(t.Context(), "/metrics"); err != nil || strings.Contains(metrics, "kuberelay_filter_errors_total{") {
				t.Errorf("the filter failed (%v)", err)
			}
			f.verifyClean()
			f.kill()
		}
	})
}
