// Package references tracks references between objects. The configuration names the fields that
// contain the references. Some resources are watched only because objects of other resources refer to
// them. An object of such a resource is selected while a selected object refers to it.
//
// The package keeps the references of each object in memory. The informers report each change by
// calling [Graph.Update]. The package reads nothing from the API server.
package references

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Objects contains the methods of the informers that a Graph calls. The methods do not block, and
// several goroutines may call them.
type Objects interface {
	// References returns the current references of an object. It returns none if the object is not
	// selected or does not exist. It returns false while the references are unknown because no
	// informer watches the object or the informer has not synced. The previous result then stays
	// valid.
	References(event.Key) ([]event.Reference, bool)

	// Find returns the object of a key, or nil if the informers do not have it. Presence says
	// whether the informers might show it soon.
	Find(event.Key) (*event.Object, Presence)

	// ReferencesChanging is called before objects of a resource become referred to, or are no longer referred
	// to, while Selects blocks. It must not call a method of the Graph.
	ReferencesChanging(schema.GroupResource)

	// ReferenceChanged is called when an object becomes referred to, or is no longer referred to.
	// It reports whether the selection of the object changes.
	ReferenceChanged(event.Key) bool
}

// target identifies an object that others refer to by name. The object need not exist.
type target struct {
	kind            schema.GroupKind
	namespace, name string // namespace is "" if the object is cluster-scoped
}

// Graph stores the references between objects. Make one with [New].
type Graph struct {
	objects Objects
	paths   Paths
	owners  bool          // owners are among the paths
	more    chan struct{} // has a token after an object has referred to a new kind

	updating sync.Mutex // held during an update, so that updates are in order

	mu       sync.RWMutex
	referrer map[target]map[event.Key]struct{}               // the objects that refer to a target
	referred map[schema.GroupResource]map[event.Key][]target // the targets of an object
	wanted   map[schema.GroupKind]int                        // number of targets by kind; a kind that the cluster serves stays, even with 0 targets
	known    map[schema.GroupKind]event.Resource             // kinds of the last discovery that references can select

	complete atomic.Bool
}

// New returns a Graph that follows the references at the paths. Each path has the form "path" or
// "resource:path", or is [Owners].
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

// More returns a channel that receives a token when an object refers to a new kind for the first
// time. [Graph.Resources] then contains the resource of that kind, if discovery shows it.
func (g *Graph) More() <-chan struct{} { return g.more }

// Selects reports whether a selected object refers to an object of a resource.
func (g *Graph) Selects(r event.Resource, k event.Key) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.referrer[target{schema.GroupKind{Group: r.Group, Kind: r.Kind}, k.Namespace, k.Name}]) > 0
}

// Resources returns the resources to watch because objects refer to them. It returns a resource as
// long as the cluster serves it, even if nothing refers to the resource anymore, because the
// informers still have to deselect the objects of that resource.
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
	return slices.Collect(maps.Keys(g.referred[gr]))
}

// HasSources reports whether objects of a resource refer to others.
func (g *Graph) HasSources(gr schema.GroupResource) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.referred[gr]) > 0
}

// IsComplete reports whether every object that can refer to others is known. While it returns false,
// no object counts as unreferenced.
func (g *Graph) IsComplete() bool { return !g.Enabled() || g.complete.Load() }

// Complete calls isComplete while no update is in progress, and records the result. It reports
// whether the Graph has just become complete.
func (g *Graph) Complete(isComplete func() bool) (became bool) {
	if !g.Enabled() {
		return false
	}
	g.updating.Lock()
	defer g.updating.Unlock()
	complete := isComplete()
	return !g.complete.Swap(complete) && complete
}

// Learn replaces the known kinds with those of a discovery. It keeps the known kinds of groups
// whose discovery failed. If a kind appears, disappears, or changes its scope, Learn updates all
// objects that refer to it, because their targets can differ.
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
