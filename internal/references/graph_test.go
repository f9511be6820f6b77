package references

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// cluster is a set of pods with their references. A pod that is not selected is nil.
type cluster struct {
	objects  map[event.Key]*event.Object
	presence Presence
	changed  []string
}

var _ Objects = (*cluster)(nil)

var podKind = schema.GroupKind{Kind: "Pod"}

func pod(name string) event.Key { return event.Key{Resource: "pods", Namespace: "default", Name: name} }

func (c *cluster) References(k event.Key) ([]event.Reference, bool) {
	o, ok := c.objects[k]
	switch {
	case !ok:
		return nil, c.presence == Settled
	case o == nil:
		return nil, true
	}
	return o.References, true
}

func (c *cluster) Find(k event.Key) (*event.Object, Presence) {
	if o, ok := c.objects[k]; ok {
		return o, Settled
	}
	return nil, c.presence
}

func (*cluster) ReferencesChanging(schema.GroupResource) {}

func (c *cluster) ReferenceChanged(k event.Key) bool {
	c.changed = append(c.changed, k.Name)
	return true
}

// refers sets the owners of a pod, to which the pod then refers.
func (c *cluster) refers(name string, to ...string) *event.Object {
	o := &event.Object{UID: types.UID(name)}
	for n, other := range to {
		o.References = append(o.References, event.Reference{Kind: "Pod", Name: other, UID: other, Controller: n == 0})
	}
	c.objects[pod(name)] = o
	return o
}

func newCluster() (*cluster, *Graph) {
	c := &cluster{objects: map[event.Key]*event.Object{}}
	g := New([]string{Owners}, c)
	g.Learn(map[schema.GroupKind]event.Resource{podKind: {Resource: "pods", Kind: "Pod", Namespaced: true}}, nil)
	return c, g
}

func (c *cluster) takeChanged() string {
	changed := fmt.Sprint(c.changed)
	c.changed = nil
	return changed
}

// TestUpdate verifies that Update also updates the objects that become referred to or are no longer
// referred to.
func TestUpdate(t *testing.T) {
	c, g := newCluster()
	selected := func(name string) bool { return g.Selects(event.Resource{Kind: "Pod"}, pod(name)) }
	c.refers("a", "b", "c")
	c.refers("b", "d")
	g.Update(pod("a"))
	if got := c.takeChanged(); got != "[b c d]" || !selected("b") || !selected("c") || !selected("d") || selected("a") {
		t.Errorf("ReferenceChanged was called for %s, want [b c d]", got)
	}
	if got := len(g.Sources(pod("").GroupResource())); got != 2 {
		t.Errorf("%d objects refer to others, want a and b", got)
	}
	g.Update(pod("a"))
	if got := c.takeChanged(); got != "[]" {
		t.Errorf("an update without a change reports %s, want nothing", got)
	}

	c.objects[pod("b")] = nil // no longer selected
	c.refers("a", "c")
	g.Update(pod("a"))
	if got := c.takeChanged(); got != "[b d]" || selected("b") || !selected("c") || selected("d") {
		t.Errorf("ReferenceChanged was called for %s, want [b d]", got)
	}

	delete(c.objects, pod("a"))
	c.presence = Pending
	g.Update(pod("a"))
	if !selected("c") {
		t.Error("the references of an object are dropped although a list in progress may contain it")
	}
	g.Forget(pod("").GroupResource())
	if got := c.takeChanged(); got != "[c]" || selected("c") || g.HasSources(pod("").GroupResource()) {
		t.Errorf("the resource is gone: ReferenceChanged was called for %s, want [c]", got)
	}
}

// TestMore verifies that a kind that is referred to for the first time is added to the watched
// resources, and that the graph is not complete until that kind is listed.
func TestMore(t *testing.T) {
	c, g := newCluster()
	if !g.Complete(func() bool { return true }) || g.Complete(func() bool { return true }) {
		t.Error("the graph did not become complete, or did so twice")
	}
	c.refers("a", "b")
	g.Update(pod("a"))
	select {
	case <-g.More():
	default:
		t.Error("More has no token for the new kind")
	}
	if g.IsComplete() || len(g.Resources()) != 1 {
		t.Errorf("complete %v, resources %v", g.IsComplete(), g.Resources())
	}
}

// TestDisabled verifies that a graph without paths follows no references and is complete.
func TestDisabled(t *testing.T) {
	g := New(nil, nil)
	g.Update(pod("a"))
	if g.Enabled() || !g.IsComplete() || g.Complete(func() bool { return false }) {
		t.Error("references are followed")
	}
}

// TestOwner verifies that Owner follows the chain of controllers as far as it is known, and that it
// returns if the chain has a cycle.
func TestOwner(t *testing.T) {
	for name, c := range map[string]struct {
		chain    []string
		presence Presence
		want     string
		known    bool
	}{
		"none":          {[]string{"a"}, Settled, "", true},
		"gone":          {[]string{"a", "b"}, Settled, "b", true},
		"of an owner":   {[]string{"a", "b", "c"}, Settled, "c", true},
		"may be listed": {[]string{"a", "b", "c"}, Pending, "c", false},
		"not watched":   {[]string{"a", "b"}, Unwatched, "b", false},
		"a cycle":       {[]string{"a", "b", "a"}, Settled, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			x, g := newCluster()
			x.presence = c.presence
			for n, name := range c.chain[:max(1, len(c.chain)-1)] {
				x.refers(name, c.chain[n+1:min(n+2, len(c.chain))]...)
			}
			owner, known := g.Owner(pod("a"), x.objects[pod("a")])
			got := ""
			if owner != nil {
				got = owner.Name
			}
			if got != c.want || known != c.known {
				t.Errorf("got %q, %v; want %q, %v", got, known, c.want, c.known)
			}
		})
	}
	x, g := newCluster()
	o := x.refers("a", "b")
	o.References[0].UID = "another"
	x.refers("b", "c")
	if owner, _ := g.Owner(pod("a"), o); owner == nil || owner.Name != "b" {
		t.Errorf("got %v: the owner of another UID was followed", owner)
	}
}

// TestLearn verifies that Learn keeps the missing kinds of a group only if the discovery of that
// group failed.
func TestLearn(t *testing.T) {
	pod, thing := schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Group: "away.example.com", Kind: "Thing"}
	g := New([]string{Owners}, &cluster{})
	g.learn(map[schema.GroupKind]event.Resource{
		pod: {Resource: "pods", Namespaced: true}, thing: {Group: "away.example.com", Resource: "things"},
	}, nil)
	k := event.Key{Resource: "configmaps", Namespace: "default", Name: "c"}
	refs := []event.Reference{{Group: thing.Group, Kind: thing.Kind, Name: "t"}}
	g.set(k, refs)
	if !g.Selects(event.Resource{Group: thing.Group, Kind: thing.Kind}, event.Key{Name: "t"}) {
		t.Fatal("a reference to a cluster-scoped object has a namespace")
	}
	if again := g.learn(map[schema.GroupKind]event.Resource{pod: {Resource: "pods", Namespaced: true}}, map[string]error{"away.example.com": errors.New("away")}); len(again) > 0 {
		t.Errorf("discovery of the group fails: %v need an update, want none", again)
	}
	if _, ok := g.resource(thing); !ok {
		t.Error("discovery of the group fails: the kind is forgotten")
	}
	if again := g.learn(map[schema.GroupKind]event.Resource{pod: {Resource: "pods", Namespaced: true}}, nil); len(again) != 1 {
		t.Errorf("the kind is gone: %v need an update, want one key", again)
	}
}

// TestLearnDuringAnUpdate verifies that a reference gets the new scope if the scope of its kind changes during an
// update. Resolving thousands of references takes longer than 1 ms. A goroutine that waits longer than that for a
// sync.Mutex is the next one to get it, so Learn runs as soon as the lock is free.
func TestLearnDuringAnUpdate(t *testing.T) {
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	c := &cluster{objects: map[event.Key]*event.Object{}}
	g := New([]string{Owners}, c)
	k := pod("p")
	o := &event.Object{UID: "p"}
	for n := range 5_000 {
		o.References = append(o.References, event.Reference{Group: thing.Group, Kind: thing.Kind, Name: fmt.Sprint(n)})
	}
	c.objects[k] = o
	g.Update(k)
	for n := range 20 {
		namespaced := n%2 == 0
		g.set(k, nil)
		var both sync.WaitGroup
		both.Go(func() { g.Update(k) })
		both.Go(func() {
			g.Learn(map[schema.GroupKind]event.Resource{thing: {Group: thing.Group, Resource: "things", Namespaced: namespaced}}, nil)
		})
		both.Wait()
		for _, got := range g.referred[k.GroupResource()][k] {
			if (got.namespace != "") != namespaced {
				t.Fatalf("round %d: namespaced is %t, but a target is %+v", n, namespaced, got)
			}
		}
	}
}

// TestManyReferences verifies that at most maxReferences references of an object are read, because
// the work for an update grows with their number. Targets that nothing refers to anymore take no
// memory.
func TestManyReferences(t *testing.T) {
	g := New([]string{Owners}, &cluster{})
	k := event.Key{Resource: "configmaps", Namespace: "tenant", Name: "a"}
	for update := range 3 {
		refs, all := g.PathsOf(event.Resource{Resource: "configmaps"}).Read(owned(2*maxReferences, update))
		if len(refs) != maxReferences || all {
			t.Fatalf("%d references are read, all: %v; want the first %d", len(refs), all, maxReferences)
		}
		if got := len(g.set(k, refs)); got != maxReferences*min(2, update+1) {
			t.Errorf("%d targets change, want the new and the former ones", got)
		}
		if len(g.wanted) != maxReferences || len(g.referrer) != maxReferences {
			t.Errorf("after update %d, %d kinds and %d targets are kept, want %d", update, len(g.wanted), len(g.referrer), maxReferences)
		}
	}
	g.set(k, nil) // the object is deleted
	if len(g.wanted)+len(g.referrer)+len(g.referred) != 0 {
		t.Errorf("an object is gone, but %d kinds, %d targets, and %d resources are left", len(g.wanted), len(g.referrer), len(g.referred))
	}
	// Repeated references count too, because reading them takes time.
	if refs, all := g.PathsOf(event.Resource{}).Read([]byte(`{"metadata":{"ownerReferences":[` + strings.Repeat(`{"kind":"A","name":"a"},`, maxReferences) + `{"kind":"B","name":"b"}]}}`)); len(refs) != 1 || all {
		t.Errorf("got %v, all: %v; want one reference, and not all", refs, all)
	}
	if _, all := g.PathsOf(event.Resource{}).Read(owned(maxReferences, 0)); !all {
		t.Errorf("not all references are read, although %d are allowed", maxReferences)
	}
}

// TestServedKindStays verifies that a kind stays watched as long as the cluster serves it. Otherwise
// the informers could not deselect objects that nothing refers to anymore.
func TestServedKindStays(t *testing.T) {
	c, g := newCluster()
	c.refers("a", "b")
	g.Update(pod("a"))
	delete(c.objects, pod("a"))
	g.Update(pod("a"))
	if len(g.referrer) != 0 || len(g.Resources()) != 1 {
		t.Errorf("%d targets, and %v is watched; want none, and pods", len(g.referrer), g.Resources())
	}
	g.Learn(map[schema.GroupKind]event.Resource{}, nil)
	if len(g.wanted) != 0 {
		t.Errorf("a kind is gone, but %v is left", g.wanted)
	}
}

// owned returns an object with n owners of n different kinds. No two updates share a kind.
func owned(n, update int) []byte {
	var b strings.Builder
	b.WriteString(`{"metadata":{"name":"a","ownerReferences":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"apiVersion":"a/v1","kind":"K%d-%d","name":"n","uid":"u"}`, update, i)
	}
	b.WriteString(`]}}`)
	return []byte(b.String())
}

// BenchmarkUpdate measures an update of an object with n references, all of them new.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := New([]string{Owners}, &cluster{})
			k := event.Key{Resource: "configmaps", Namespace: "tenant", Name: "a"}
			versions := [][]byte{owned(n, 0), owned(n, 1)}
			for i := 0; b.Loop(); i++ {
				refs, _ := g.PathsOf(event.Resource{}).Read(versions[i%2])
				g.set(k, refs)
			}
		})
	}
}
