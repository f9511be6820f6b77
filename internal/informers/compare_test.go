package informers

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestDeletedWhileNobodyWatched verifies that a comparison finds deletes from before the first list.
// The informer never shows such an object, so only a read can prove that the object is gone.
func TestDeletedWhileNobodyWatched(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	gr := configMaps.GroupResource()
	there, deleted, recreated := o.create("there", nil), o.create("deleted", nil), o.create("recreated", nil)
	o.delete("deleted")
	o.delete("recreated")
	again := o.create("recreated", nil)

	var g gate
	r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}})
	r.acknowledge(o.key("there"), ackedOf(there))
	r.acknowledge(o.key("deleted"), ackedOf(deleted))
	r.acknowledge(o.key("recreated"), ackedOf(recreated))
	r.acknowledge(o.key("done"), event.Acked{UID: "D", ResourceVersion: "1", Deleted: true})
	r.awaitSynced(t, gr)
	r.awaitView(t, "there", o.key("there"), there)
	r.awaitView(t, "recreated", o.key("recreated"), again)

	g.set(true)
	if got, err := r.reconcile(t, gr); got != (reconcile.Comparison{}) || err == nil {
		t.Errorf("without an API server: got %+v, error %v; want no conclusion and an error", got, err)
	}
	for _, name := range []string{"there", "deleted", "recreated"} {
		if r.hasBeenBuried(o.key(name)) {
			t.Errorf("%s has a tombstone, although no read could prove a delete", name)
		}
	}
	g.set(false)
	poll.Try(t, "the comparison", func(context.Context) error {
		_, err := r.reconcile(t, gr)
		return err
	})
	r.awaitView(t, "deleted", o.key("deleted"), nil, deleted)
	r.awaitView(t, "recreated", o.key("recreated"), again, recreated)
	if v := r.view(o.key("deleted")); v.Tombstones[0].Cause != event.CauseReconcile || v.Tombstones[0].Object != nil {
		t.Errorf("got %+v, want an inferred tombstone", v.Tombstones[0])
	}
	for _, name := range []string{"there", "done"} {
		if r.hasBeenBuried(o.key(name)) {
			t.Errorf("%s had a tombstone", name)
		}
	}
}

// TestOutOfScope verifies that objects that exist but are no longer selected stay on the bus.
func TestOutOfScope(t *testing.T) {
	cp := cluster.ControlPlane(t)
	in := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	outside := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	gr := configMaps.GroupResource()
	web := map[string]string{"app": "web"}
	selected, unselected, foreign := in.create("selected", web), in.create("unselected", nil), outside.create("foreign", web)
	gone, foreignGone := in.create("gone", nil), outside.create("gone", web)
	in.delete("gone")
	outside.delete("gone")

	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{in.namespace}}, LabelSelector: "app=web",
	})
	r.acknowledge(in.key("selected"), ackedOf(selected))
	r.acknowledge(in.key("unselected"), ackedOf(unselected))
	r.acknowledge(outside.key("foreign"), ackedOf(foreign))
	r.acknowledge(in.key("gone"), ackedOf(gone))
	r.acknowledge(outside.key("gone"), ackedOf(foreignGone)) // no read covers this namespace anymore
	r.awaitSynced(t, gr)
	if got, want := must(r.reconcile(t, gr))(t), (reconcile.Comparison{Deleted: 1, OutOfScope: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.awaitView(t, "gone", in.key("gone"), nil, gone)
	for _, k := range []event.Key{in.key("selected"), in.key("unselected"), outside.key("foreign"), outside.key("gone")} {
		if r.hasBeenBuried(k) {
			t.Errorf("%s had a tombstone", k)
		}
	}
}

func must(c reconcile.Comparison, err error) func(*testing.T) reconcile.Comparison {
	return func(t *testing.T) reconcile.Comparison {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return c
	}
}

// TestTheResourceIsGone verifies, against a real API server, that a comparison distinguishes a
// resource whose definition was deleted from a resource that is only not selected.
func TestTheResourceIsGone(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	gone := define(t, cp, "gone.example.com", true, "v1")
	unselected := define(t, cp, "unselected.example.com", true, "v1")
	o, u := newObjects(t, cp, gone, "Widget", namespace), newObjects(t, cp, unselected, "Widget", namespace)
	one, two := o.create("one", nil), u.create("two", nil)
	undefine(t, cp, "gone.example.com")

	var g gate
	r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps", "widgets.gone.example.com"}}})
	r.acknowledge(o.key("one"), ackedOf(one))
	r.acknowledge(u.key("two"), ackedOf(two))
	r.awaitSynced(t, configMaps.GroupResource())

	g.set(true)
	if got, err := r.reconcile(t, gone.GroupResource()); got != (reconcile.Comparison{}) || err == nil {
		t.Errorf("without discovery: got %+v, error %v; want no conclusion and an error", got, err)
	}
	g.set(false)
	var got reconcile.Comparison
	poll.Try(t, "the comparison of what is gone", func(context.Context) (err error) {
		got, err = r.reconcile(t, gone.GroupResource())
		return err
	})
	if want := (reconcile.Comparison{Deleted: 1}); got != want {
		t.Errorf("gone: got %+v, want %+v", got, want)
	}
	r.awaitView(t, "one", o.key("one"), nil, one)
	if got, want := must(r.reconcile(t, unselected.GroupResource()))(t), (reconcile.Comparison{OutOfScope: 1}); got != want {
		t.Errorf("not selected: got %+v, want %+v", got, want)
	}
	if r.hasBeenBuried(u.key("two")) {
		t.Error("an object of a resource that is not selected had a tombstone")
	}
}

// TestWhatTheAPIServerSaysOfAMissingObject verifies that IsObjectNotFound distinguishes a missing
// object from a missing resource. Otherwise the forwarder would publish deletes for all objects of
// a resource while its definition is being replaced.
func TestWhatTheAPIServerSaysOfAMissingObject(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	served := define(t, cp, "served.example.com", true, "v1")
	poll.Try(t, "it is served", func(context.Context) error {
		_, err := newObjects(t, cp, served, "Widget", namespace).client.List(t.Context(), metav1.ListOptions{})
		return err
	})
	client, _ := clients(t, cp.Config())
	other := served
	other.Version = "v2"
	for name, c := range map[string]struct {
		gvr  schema.GroupVersionResource
		want bool
	}{
		"core object":             {configMaps, true},
		"custom object":           {served, true},
		"version that is not":     {other, false},
		"resource that is not":    {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "scrolls"}, false},
		"core resource not there": {schema.GroupVersionResource{Version: "v1", Resource: "scrolls"}, false},
		"group that is not":       {schema.GroupVersionResource{Group: "none.example.com", Version: "v1", Resource: "widgets"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Resource(c.gvr).Namespace(namespace).Get(t.Context(), "nonesuch", metav1.GetOptions{})
			if got := discovery.IsObjectNotFound(err); err == nil || got != c.want {
				t.Errorf("an object is not found: %v, %v; want %v", got, err, c.want)
			}
		})
	}
}
