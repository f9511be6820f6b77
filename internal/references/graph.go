// Package references knows which objects refer to which, by the fields that the
// configuration names. An object of a resource that is watched only because others refer to
// it is selected while a selected object refers to it.
//
// It keeps the references of each object in memory, and learns of each change by a call of
// [Graph.Update]. It reads nothing from the API server.
package references

import (
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Objects is what a Graph needs of the informers. Its methods do not block, and may be
// called from several goroutines.
type Objects interface {
	// References returns what an object refers to now, nothing if it is not selected or does not
	// exist. It returns false while that is unknown, because nothing watches the object or its
	// informer has not synced. The previous answer then stays valid.
	References(event.Key) ([]event.Reference, bool)

	// Find looks for the owner of another object.
	Find(event.Key) (*event.Object, Presence)

	// ReferenceChanged is called when an object gets its first reference, or loses its last one.
	// It reports whether that changes the selection of the object.
	ReferenceChanged(event.Key) bool
}

// target is an object that others refer to by name, whether it exists or not.
type target struct {
	kind            schema.GroupKind
	namespace, name string // namespace is "" if the object is cluster-scoped
}

// Graph has the references between objects. Make one with [New].
type Graph struct {
	objects Objects
	paths   Paths
	owners  bool          // owners are among the paths
	more    chan struct{} // has a token when a kind is referred to for the first time

	updating sync.Mutex // held during an update, so that updates are in order

	mu       sync.RWMutex
	referrer map[target]map[event.Key]struct{}               // the objects that refer to a target
	referred map[schema.GroupResource]map[event.Key][]target // the targets of an object
	wanted   map[schema.GroupKind]int                        // targets by kind; a kind that the cluster serves stays
	known    map[schema.GroupKind]event.Resource             // of the last discovery, those that may be followed

	complete atomic.Bool
}

// New makes a Graph that follows the paths: "path" or "resource:path", or [Owners].
func New(paths []string, objects Objects) *Graph {
	g := &Graph{
		objects: objects, more: make(chan struct{}, 1),
		referrer: map[target]map[event.Key]struct{}{}, referred: map[schema.GroupResource]map[event.Key][]target{},
		wanted: map[schema.GroupKind]int{}, known: map[schema.GroupKind]event.Resource{},
	}
	for _, s := range paths {
		p := parsePath(s)
		g.paths = append(g.paths, p)
		g.owners = g.owners || p.isOwners()
	}
	return g
}

// Enabled reports whether any references are followed.
func (g *Graph) Enabled() bool { return len(g.paths) > 0 }

// FollowsOwners reports whether owners are followed.
func (g *Graph) FollowsOwners() bool { return g.owners }

// PathsOf returns the fields by which objects of a resource refer to others.
func (g *Graph) PathsOf(r event.Resource) Paths { return g.paths.of(r) }

// More returns a channel that gets a token when an object first refers to a new kind. The kind is then
// among [Graph.Resources].
func (g *Graph) More() <-chan struct{} { return g.more }

// Selects reports whether a selected object refers to an object of a resource.
func (g *Graph) Selects(r event.Resource, k event.Key) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.referrer[target{schema.GroupKind{Group: r.Group, Kind: r.Kind}, k.Namespace, k.Name}]) > 0
}

// Resources returns the resources to watch because others refer to them. A resource stays among
// them while the cluster serves it, because an object that nothing refers to any more has yet to be
// deselected.
func (g *Graph) Resources() []event.Resource {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var all []event.Resource
	for gk := range g.wanted {
		if r, ok := g.known[gk]; ok {
			all = append(all, r)
		}
	}
	return all
}

// Sources returns the objects of a resource that refer to others.
func (g *Graph) Sources(gr schema.GroupResource) []event.Key {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var keys []event.Key
	for k := range g.referred[gr] {
		keys = append(keys, k)
	}
	return keys
}

// HasSources reports whether objects of a resource refer to others.
func (g *Graph) HasSources(gr schema.GroupResource) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.referred[gr]) > 0
}

// IsComplete reports whether every object that may refer to others is known. Until then, no object
// counts as unreferenced.
func (g *Graph) IsComplete() bool { return !g.Enabled() || g.complete.Load() }

// Complete records the result of isComplete, which it calls while no update is in progress. It
// reports whether the Graph has just become complete.
func (g *Graph) Complete(isComplete func() bool) (became bool) {
	if !g.Enabled() {
		return false
	}
	g.updating.Lock()
	defer g.updating.Unlock()
	complete := isComplete()
	return !g.complete.Swap(complete) && complete
}

// Learn takes the kinds of a discovery, and keeps those of the groups for which it failed. If the
// scope of a kind has become known, the objects that refer to it have other targets, and Learn
// updates these objects.
func (g *Graph) Learn(known map[schema.GroupKind]event.Resource, failed map[string]error) {
	for _, k := range g.learn(known, failed) {
		g.Update(k)
	}
}

func (g *Graph) learn(known map[schema.GroupKind]event.Resource, failed map[string]error) (again []event.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for gk, r := range g.known {
		if _, ok := known[gk]; !ok && failed[gk.Group] != nil {
			known[gk] = r
		}
	}
	changed := map[schema.GroupKind]bool{}
	for gk := range g.wanted {
		was, had := g.known[gk]
		is, has := known[gk]
		if had != has || was.Namespaced != is.Namespaced {
			changed[gk] = true
		}
	}
	g.known = known
	for gk := range g.wanted {
		g.forgetKind(gk)
	}
	for _, keys := range g.referred {
		for k, targets := range keys {
			if slices.ContainsFunc(targets, func(t target) bool { return changed[t.kind] }) {
				again = append(again, k)
			}
		}
	}
	return again
}

func (g *Graph) resource(gk schema.GroupKind) (event.Resource, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	r, ok := g.known[gk]
	return r, ok
}
