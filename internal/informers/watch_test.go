package informers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestWatch verifies, for each kind of resource, that every change of an object is reported in
// order and that a delete has the last state.
func TestWatch(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	widgets := define(t, cp, "watch.example.com", true, "v1")
	rings := define(t, cp, "watch-cluster.example.com", false, "v1")
	for name, c := range map[string]struct {
		selector string
		objects  objects
	}{
		"namespaced":             {"configmaps", newObjects(t, cp, configMaps, "ConfigMap", namespace)},
		"cluster-scoped":         {"PriorityClass", newObjects(t, cp, priorityClasses, "PriorityClass", "")},
		"custom, namespaced":     {"widgets.watch.example.com", newObjects(t, cp, widgets, "Widget", namespace)},
		"custom, cluster-scoped": {"widgets.watch-cluster.example.com", newObjects(t, cp, rings, "Widget", "")},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.objects
			o.t = t
			key := o.key("web")
			before := o.create("before", nil)
			r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{c.selector}}})
			r.awaitView(t, "what was there", o.key("before"), before)
			if v := r.view(o.key("before")); v.Cause != event.CauseSnapshot || !v.FirstSync {
				t.Errorf("an object from before the start: cause %s, first sync %v; want snapshot", v.Cause, v.FirstSync)
			}
			a := o.create("web", nil)
			r.awaitView(t, "created", key, a)
			if v := r.view(key); v.Cause != event.CauseWatch || v.FirstSync {
				t.Errorf("created: cause %s, first sync %v; want watch", v.Cause, v.FirstSync)
			}
			if v := r.view(key); v.Resource.GroupVersionResource() != o.gvr || v.Resource.Kind != o.kind || v.Resource.Namespaced != (o.namespace != "") {
				t.Errorf("got resource %+v", v.Resource)
			}
			r.acknowledge(key, ackedOf(a))
			a = o.touch(a, nil)
			r.awaitView(t, "updated", key, a)
			if body := bodyOf(t, r.view(key).Live); !strings.Contains(body, `"touched"`) || strings.Contains(body, "managedFields") {
				t.Errorf("got body %s", body)
			}
			o.delete("web")
			r.awaitView(t, "deleted", key, nil, a)
			if last := r.view(key).Tombstones[0].Object; last == nil || !strings.Contains(bodyOf(t, last), `"touched"`) {
				t.Errorf("deleted: the last state is %+v", last)
			}
			b := o.create("web", nil)
			r.awaitView(t, "recreated", key, b, a)
			o.delete("web")
			r.awaitView(t, "deleted again", key, nil, a, b)
			r.acknowledge(key, event.Acked{UID: string(a.GetUID()), Deleted: true})
			if got := r.Lookup(key); len(got.Tombstones) != 0 {
				t.Errorf("the bus never had the second, and has the delete of the first: %s", describeView(got))
			}
			o.delete("before")
		})
	}
}

func TestLabelSelector(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	web := map[string]string{"app": "web"}
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, LabelSelector: "app=web"})
	key := o.key("one")
	o.create("other", nil)
	one := o.create("one", web)
	r.awaitView(t, "selected", key, one)
	left := o.touch(one, nil)
	r.awaitView(t, "left the selection", key, nil, left)
	one = o.touch(left, web)
	r.awaitView(t, "back: it is not gone any more", key, one)
	if v := r.Lookup(o.key("other")); v.Live != nil || len(v.Tombstones) > 0 {
		t.Errorf("not selected: got %s", describeView(v))
	}
}

func TestFieldSelector(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, FieldSelector: "metadata.name=one"})
	o.create("other", nil)
	r.awaitView(t, "selected", o.key("one"), o.create("one", nil))
	if v := r.Lookup(o.key("other")); v.Live != nil {
		t.Errorf("not selected: got %s", describeView(v))
	}
}

// TestNamespaces verifies that each included namespace has a separate informer, and that a list of
// namespaces does not affect cluster-scoped resources.
func TestNamespaces(t *testing.T) {
	cp := cluster.ControlPlane(t)
	in := []objects{}
	for range 3 {
		in = append(in, newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp)))
	}
	classes := newObjects(t, cp, priorityClasses, "PriorityClass", "")
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps", "priorityclasses"}}, Namespaces: discovery.NamespaceSelection{Include: []string{in[0].namespace, in[1].namespace}},
	})
	in[2].create("web", nil)
	for _, o := range in[:2] {
		made := o.create("web", nil)
		r.awaitView(t, "in "+o.namespace, o.key("web"), made)
		o.delete("web")
		r.awaitView(t, "deleted in "+o.namespace, o.key("web"), nil, made)
	}
	class := classes.create("namespaces", nil)
	r.awaitView(t, "cluster-scoped", classes.key("namespaces"), class)
	classes.delete("namespaces")
	if v := r.Lookup(in[2].key("web")); v.Live != nil {
		t.Errorf("in a namespace that is not watched: got %s", describeView(v))
	}
	var got []string
	for _, st := range r.Status() {
		got = append(got, st.Resource.Resource+" "+st.Namespace)
	}
	want := []string{"configmaps " + in[0].namespace, "configmaps " + in[1].namespace, "priorityclasses "}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got informers %q, want %q", got, want)
	}
}

// TestResync verifies that a resync enqueues every key, even if it is clean and unchanged.
func TestResync(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	keys := []event.Key{o.key("one"), o.key("two")}
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}, Resync: time.Second,
	})
	for _, k := range keys {
		made := o.create(k.Name, nil)
		r.awaitView(t, "created", k, made)
		r.acknowledge(k, ackedOf(made))
	}
	if n := r.ledger.DirtyLen(); n != 0 {
		t.Errorf("%d keys are dirty, want none", n)
	}
	r.mu.Lock()
	r.enqueued = map[event.Key]int{}
	r.mu.Unlock()
	r.await(t, "two resyncs", func() bool { return r.enqueued[keys[0]] >= 2 && r.enqueued[keys[1]] >= 2 })
	if n := r.ledger.DirtyLen(); n != 0 {
		t.Errorf("%d keys are dirty after a resync, want none", n)
	}
}

// TestFirstSync verifies that the started marker precedes the first object (see Started), and that
// the completed marker follows the acknowledgement of the last object. A second run writes neither
// marker.
func TestFirstSync(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	gr := configMaps.GroupResource()
	made := map[string]*unstructured.Unstructured{}
	for _, name := range []string{"a", "b", "deleted", "recreated"} {
		made[name] = o.create(name, nil)
	}
	selection := Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}}
	r := start(t, cp.Config(), selection)
	r.awaitSynced(t, gr)

	notYet := func(what string) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.completed[gr]; ok {
			t.Fatalf("completed after %s", what)
		}
	}
	notYet("the list")
	r.acknowledge(o.key("a"), ackedOf(made["a"]))
	notYet("the first acknowledgement")
	o.delete("deleted")
	r.awaitView(t, "deleted", o.key("deleted"), nil, made["deleted"])
	o.delete("recreated")
	r.awaitView(t, "deleted", o.key("recreated"), nil, made["recreated"])
	again := o.create("recreated", nil)
	r.awaitView(t, "recreated", o.key("recreated"), again, made["recreated"])
	if r.view(o.key("recreated")).FirstSync {
		t.Error("an object that was created after the list belongs to the first sync")
	}
	made["b"] = o.touch(made["b"], nil)
	r.awaitView(t, "updated", o.key("b"), made["b"])
	if !r.view(o.key("b")).FirstSync {
		t.Error("an object of the first list no longer belongs to the first sync after an update")
	}
	notYet("deletes and an update")
	r.acknowledge(o.key("b"), ackedOf(made["b"]))
	r.acknowledge(o.key("recreated"), ackedOf(again))
	notYet("all but one answer")
	r.Settle(o.key("deleted"), event.Acked{})
	r.await(t, "the completed marker", func() bool { _, ok := r.completed[gr]; return ok })
	if got, want := r.completed[gr], 3; got != want {
		t.Errorf("the marker counts %d objects, want %d", got, want)
	}
}

// TestReady verifies that Ready returns nil when all informers have synced, even if a selector
// matches nothing.
func TestReady(t *testing.T) {
	r := start(t, cluster.ControlPlane(t).Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps", "gadgets.example.net"}}})
	poll.Try(t, "ready, though a selector waits", func(context.Context) error { return r.Ready() })
	for _, st := range r.Status() {
		if !st.Synced || st.Failing != nil {
			t.Errorf("ready, with %+v", st)
		}
	}
	if n := len(r.Status()); n != 1 {
		t.Errorf("%d informers, want 1", n)
	}
}

func TestReadyBeforeDiscovery(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "discovery") {
		t.Errorf("got %v, want an error that names discovery", err)
	}
	failure := errors.New("no answer")
	b.noteDiscovery(failure, false)
	if err := b.Ready(); !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	b.answer = &survey.Answer{}
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "configmaps") {
		t.Errorf("got %v, want an error that names configmaps", err)
	}
	b.watched.informers.All()[""].setFailing(forbiddenError("configmaps", ""), time.Now())
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "get, list, and watch") {
		t.Errorf("got %v, want an error that names the missing verbs", err)
	}
	b.sync()
	b.watched.informers.All()[""].setFailing(failure, time.Now())
	if err := b.Ready(); err != nil {
		t.Errorf("got %v, want nil because all informers have synced", err)
	}
}
