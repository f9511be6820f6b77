package informers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/references"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func selector(t *testing.T, s string) labels.Selector {
	t.Helper()
	l, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// label sets the label team of a namespace.
func label(t *testing.T, cp *controlplane.ControlPlane, namespace, team string) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"team":%q}}}`, team)
	if _, err := client.Resource(discovery.NamespaceResource).Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNamespaceLabels verifies that the selection follows the labels of namespaces, both with
// separate watches and with one watch of all namespaces.
func TestNamespaceLabels(t *testing.T) {
	for name, few := range map[string]int{"one by one": 0, "all at once": -1} {
		t.Run(name, func(t *testing.T) {
			cp := cluster.ControlPlane(t)
			in, out := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
			team := "t" + in // unique to this test
			label(t, cp, in, team)
			inside, outside := newObjects(t, cp, configMaps, "ConfigMap", in), newObjects(t, cp, configMaps, "ConfigMap", out)
			one, two := inside.create("one", nil), outside.create("two", nil)

			r := newRunning(t, cp.Config(), Config{
				Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team="+team), MaxSeparate: few},
			})
			r.run(t)
			r.awaitView(t, "what is selected", inside.key("one"), one)
			r.acknowledge(inside.key("one"), ackedOf(one))
			if v := r.Lookup(outside.key("two")); v.Live != nil || len(v.Tombstones) > 0 && few == 0 {
				t.Errorf("an object that is not selected has the view %+v", v)
			}

			label(t, cp, out, team)
			r.awaitView(t, "what is selected now", outside.key("two"), two)
			r.acknowledge(outside.key("two"), ackedOf(two))
			later := outside.create("later", nil)
			r.awaitView(t, "what comes later", outside.key("later"), later)
			r.acknowledge(outside.key("later"), ackedOf(later))

			label(t, cp, out, "other")
			r.awaitView(t, "what is not selected any more", outside.key("two"), nil, two)
			poll.Try(t, "a deselection with the object", func(context.Context) error {
				if v := r.Lookup(outside.key("two")); len(v.Tombstones) != 1 || !v.Tombstones[0].Deselected || v.Tombstones[0].Object == nil {
					return fmt.Errorf("got %+v", v)
				}
				return nil
			})
			r.acknowledge(outside.key("two"), event.Acked{UID: string(two.GetUID()), ResourceVersion: two.GetResourceVersion(), Deleted: true, Deselected: true})

			// A change of an object that is not selected must have no effect.
			outside.touch(two, nil)
			if got, err := r.reconcile(t, configMaps.GroupResource()); err != nil || got.Deleted > 0 || got.Deselected != 1 {
				t.Errorf("compared: %+v, %v; want a deselection of the object that the bus still shows", got, err)
			}

			label(t, cp, out, team)
			poll.Try(t, "it is selected again", func(context.Context) error {
				if v := r.Lookup(outside.key("two")); v.Live == nil || len(v.Tombstones) > 0 {
					return fmt.Errorf("got %+v", v)
				}
				return nil
			})
			if v := r.Lookup(inside.key("one")); v.Live == nil {
				t.Error("an object that was always selected is missing")
			}
		})
	}
}

// TestNamespacesThatChangedWhileDown verifies the comparison of objects that the bus shows as
// existing in namespaces that are no longer selected or no longer exist.
func TestNamespacesThatChangedWhileDown(t *testing.T) {
	cp := cluster.ControlPlane(t)
	in, out := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	objects := newObjects(t, cp, configMaps, "ConfigMap", out)
	there := objects.create("there", nil)
	team := "t" + in
	label(t, cp, in, team)
	key := func(namespace, name string) event.Key {
		return event.Key{Resource: "configmaps", Namespace: namespace, Name: name}
	}
	for name, c := range map[string]struct {
		selection discovery.NamespaceSelection
		tell      bool
		want      reconcile.Comparison // without Waiting
	}{
		"by labels":                         {discovery.NamespaceSelection{Selector: selector(t, "team="+team)}, false, reconcile.Comparison{Deselected: 1, Deleted: 1}},
		"by configuration":                  {discovery.NamespaceSelection{Include: []string{in}}, false, reconcile.Comparison{OutOfScope: 2}},
		"by configuration, and it is told":  {discovery.NamespaceSelection{Include: []string{in}}, true, reconcile.Comparison{Deselected: 1, Deleted: 1}},
		"all but some":                      {discovery.NamespaceSelection{Exclude: []string{out}}, false, reconcile.Comparison{OutOfScope: 1, Deleted: 1}},
		"all but some, and it is told":      {discovery.NamespaceSelection{Exclude: []string{out}}, true, reconcile.Comparison{Deselected: 1, Deleted: 1}},
		"labels that match, a list not":     {discovery.NamespaceSelection{Selector: selector(t, "team="+team), Include: []string{out}}, false, reconcile.Comparison{Deselected: 1, Deleted: 1}},
		"labels and list leave it out both": {discovery.NamespaceSelection{Selector: selector(t, "team="+team), Exclude: []string{out}}, false, reconcile.Comparison{OutOfScope: 1, Deleted: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: c.selection, PublishDeselected: c.tell})
			r.acknowledge(key(out, "there"), ackedOf(there))
			r.acknowledge(key("nonesuch", "gone"), live("G", "1"))
			poll.Try(t, "ready", func(context.Context) error { return r.Ready() })
			poll.Try(t, "compared", func(context.Context) error {
				got, err := r.reconcile(t, configMaps.GroupResource())
				if got.Waiting > 0 || err != nil {
					return fmt.Errorf("%+v, %w", got, err)
				}
				if got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				return nil
			})
			_, buried := r.Lookup(key(out, "there")).Tombstone(string(there.GetUID()))
			if want := c.want.Deselected > 0; buried != want {
				t.Errorf("the object has a tombstone: %v, want %v", buried, want)
			}
		})
	}
}

// TestDeletedAndThenUnselected verifies that an unobserved delete counts as a delete, not as a
// deselection, although the namespace is no longer selected.
func TestDeletedAndThenUnselected(t *testing.T) {
	for name, few := range map[string]int{"one by one": 0, "all at once": -1} {
		t.Run(name, func(t *testing.T) {
			cp := cluster.ControlPlane(t)
			in, out := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
			label(t, cp, in, "t"+in)
			objects := newObjects(t, cp, configMaps, "ConfigMap", out)
			there := objects.create("there", nil)
			replaced := objects.create("replaced", nil)
			r := newRunning(t, cp.Config(), Config{
				Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team=t"+in), MaxSeparate: few},
			})
			r.run(t)
			r.acknowledge(objects.key("there"), ackedOf(there))
			r.acknowledge(objects.key("replaced"), live("former", "1"))
			r.acknowledge(objects.key("gone"), live("G", "1"))
			poll.Try(t, "compared", func(context.Context) error {
				got, err := r.reconcile(t, configMaps.GroupResource())
				if got != (reconcile.Comparison{Deselected: 1, Deleted: 2}) || err != nil {
					return fmt.Errorf("%+v, %w", got, err)
				}
				return nil
			})
			for k, deselected := range map[event.Key]bool{objects.key("there"): true, objects.key("gone"): false} {
				if v := r.Lookup(k); len(v.Tombstones) != 1 || v.Tombstones[0].Deselected != deselected {
					t.Errorf("%s: got %+v", k, v.Tombstones)
				}
			}
			_ = replaced
		})
	}
}

// TestUpdateWhileUnselected verifies what the informers report about an unpublished object if it changes
// while its namespace is not selected.
func TestUpdateWhileUnselected(t *testing.T) {
	unselected := func() *event.Object { // by the filter
		o := object("A", "2")
		o.Unselected, o.Body = true, event.Body{}
		return o
	}
	on := map[string]string{"on": "true"}
	newObject := func(t *testing.T) *bench {
		b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Selector: selector(t, "on"), MaxSeparate: -1}}, testResource)
		b.namespaces.Put("default", on)
		b.namespaces.Synced()
		b.add(object("A", "1"))
		b.namespaces.Put("default", nil)
		return b
	}
	for name, change := range map[string]func(*bench){
		"an update": func(b *bench) { b.update(object("A", "3")) },
		"an object that returns to the label selector": func(b *bench) { b.delete(object("A", "2")); b.add(object("A", "3")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newObject(t)
			change(b)
			b.namespaces.Put("default", on)
			b.Acknowledged(testKey, live("A", "3"), object("A", "3"))
			if n := b.ledger.DirtyLen(); n > 0 {
				t.Error("the key stays dirty, although the bus has its state")
			}
		})
	}
	t.Run("an informer that ends leaves no tombstone without a state", func(t *testing.T) {
		b := newObject(t)
		b.index(unselected()) // not reported yet
		b.Unanswered(testKey, event.Acked{}, live("A", "1"))
		i := b.watched.informers.All()[""]
		b.watched.informers.Change(func(m map[string]*informer) { delete(m, "") })
		i.cancel = func() { close(i.stopped) }
		b.drop(b.watched, i)
		if n := b.ledger.DirtyLen(); n > 0 {
			t.Error("the key stays dirty, and nothing can publish its state")
		}
	})
	t.Run("a delete has the last state that may be on the bus", func(t *testing.T) {
		b := newObject(t)
		b.Unanswered(testKey, event.Acked{}, live("A", "1"))
		b.update(unselected())
		b.delete(unselected())
		if gone, _ := b.Lookup(testKey).Tombstone("A"); gone.Object == nil || gone.Object.ResourceVersion != "1" {
			t.Errorf("the tombstone has %+v", gone.Object)
		}
	})
}

// TestNamespacesNotKnownYet verifies that a comparison concludes nothing before the namespaces are
// listed. An earlier version deselected all objects after a restart, and created them again.
func TestNamespacesNotKnownYet(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Selector: labels.Everything()}}, testResource)
	k := testResource.Key("default", "web")
	acked := map[event.Key]event.Acked{k: live("A", "1")}
	if got, err := b.Reconcile(t.Context(), testResource.GroupResource(), maps.All(acked)); got != (reconcile.Comparison{Waiting: 1}) || err != nil {
		t.Errorf("got %+v, %v; want it to wait", got, err)
	}
	if v := b.Lookup(k); len(v.Tombstones) > 0 {
		t.Errorf("got %+v", v)
	}
}

// TestManyNamespacesAreOneWatch verifies that the change between separate watches and one watch has
// hysteresis.
func TestManyNamespacesAreOneWatch(t *testing.T) {
	s := &Set{config: Config{Now: time.Now}, namespaces: discovery.NewNamespaces(discovery.NamespaceSelection{Selector: labels.Everything(), MaxSeparate: 4})}
	s.namespaces.Synced()
	w := s.newWatched(event.Resource{Resource: "pods", Namespaced: true}, false, func() {})
	n := 0
	for _, step := range []struct {
		namespaces int
		want       int // informers
	}{{4, 4}, {8, 8}, {9, 1}, {3, 1}, {2, 2}, {1, 1}, {9, 1}} {
		for ; n < step.namespaces; n++ {
			s.namespaces.Put(fmt.Sprint("n", n), nil)
		}
		for ; n > step.namespaces; n-- {
			s.namespaces.Remove(fmt.Sprint("n", n-1))
		}
		names, denied := discovery.Scopes(t.Context(), w.resource, s.namespaces, s.config.Access, w.coverage())
		if len(names) != step.want || len(denied) > 0 {
			t.Errorf("%d namespaces: informers of %q, denied %v; want %d", step.namespaces, names, denied, step.want)
		}
		w.informers.Change(func(m map[string]*informer) { clear(m) })
		for _, name := range names {
			w.informers.Put(name, &informer{of: w, registration: syncedRegistration{}})
		}
	}
}

// TestOnlySomeNamespacesAreAllowed verifies that selected namespaces get separate watches if access
// to all namespaces is denied.
func TestOnlySomeNamespacesAreAllowed(t *testing.T) {
	cp := cluster.ControlPlane(t)
	may, mayNot := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	controlplanetest.AllowReader(t, cp, may, "secrets")
	allow(t, cp, "namespaces")
	secrets := configMaps
	secrets.Resource = "secrets"
	objects := newObjects(t, cp, secrets, "Secret", may)
	one := objects.create("one", nil)
	newObjects(t, cp, secrets, "Secret", mayNot).create("two", nil)
	label(t, cp, may, "t"+may)
	label(t, cp, mayNot, "t"+may)

	r := newRunning(t, cp.ConfigFor("reader"), Config{
		Selection: discovery.Selection{Include: []string{"secrets"}}, Namespaces: discovery.NamespaceSelection{Selector: selector(t, "team=t"+may), MaxSeparate: 1},
		Access: access(t, cp.ConfigFor("reader")),
	})
	r.run(t)
	r.awaitView(t, "what is allowed", objects.key("one"), one)
	poll.Try(t, "the other namespace is named", func(context.Context) error {
		for _, st := range r.Status() {
			if st.Namespace == mayNot && apierrors.IsForbidden(st.Failing) && st.Reason == "forbidden" {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status())
	})
	poll.Try(t, "ready without what is forbidden", func(context.Context) error { return r.Ready() })
	controlplanetest.AllowReader(t, cp, mayNot, "secrets")
	r.again(t)
	poll.Try(t, "what is allowed later starts by itself", func(context.Context) error {
		for _, st := range r.Status() {
			if st.Namespace == mayNot && st.Synced && st.Objects == 1 {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status())
	})
}

// again makes all resources review their access immediately instead of after ReviewInterval.
func (r *running) again(t *testing.T) {
	t.Helper()
	r.eachWatched((*watched).requestAlign)
}

// TestANamespaceThatIsSelectedForAMoment verifies that a comparison is requested if a namespace loses
// its label before its informer has started, or while access to it is denied. If an informer covers the
// namespace, the end of that informer requests the comparison.
func TestANamespaceThatIsSelectedForAMoment(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Selector: selector(t, "sync=yes")}}, testResource)
	b.namespaces.Put("covered", map[string]string{"sync": "yes"})
	b.namespaces.Synced()
	b.watched.informers.Put("covered", b.watched.informers.All()[""])
	b.watched.informers.Change(func(m map[string]*informer) { delete(m, "") })
	b.deny(b.watched, map[string]error{"denied": forbiddenError("secrets", "")})
	for _, namespace := range []string{"covered", "new", "denied"} {
		b.compared = nil
		b.namespaces.Put(namespace, map[string]string{"sync": "yes"})
		if b.namespaceChanged(namespace); len(b.compared) > 0 {
			t.Errorf("namespace %s is selected: compared %v", namespace, b.compared)
		}
		b.namespaces.Put(namespace, nil)
		if b.namespaceChanged(namespace); (len(b.compared) > 0) != (namespace != "covered") {
			t.Errorf("namespace %s is not selected: compared %v", namespace, b.compared)
		}
	}
}

// TestOwnerInANewNamespace verifies that an object waits for its owner if the informer of the owner's resource
// has not started yet in a namespace that was just selected. It does not wait if access is denied there.
func TestOwnerInANewNamespace(t *testing.T) {
	b := newBench(t, Config{
		Namespaces: discovery.NamespaceSelection{Selector: selector(t, "on")}, Follow: []string{references.Owners},
	}, testResource)
	b.namespaces.Synced()
	b.watched.informers.Change(func(m map[string]*informer) { clear(m) }) // no namespace was selected
	find := func() references.Presence {
		_, presence := referring{b.Set}.Find(testKey)
		return presence
	}
	if got := find(); got != references.Settled {
		t.Errorf("not selected: got %d", got)
	}
	b.namespaces.Put(testKey.Namespace, map[string]string{"on": ""})
	if got := find(); got != references.Pending {
		t.Errorf("selected: got %d, want pending", got)
	}
	for _, namespace := range []string{"", testKey.Namespace} {
		b.watched.alignment.Store(&alignment{complete: true, denied: map[string]denial{namespace: {err: errors.New("denied")}}})
		if got := find(); got != references.Settled {
			t.Errorf("access to %q is denied: got %d", namespace, got)
		}
	}
}
