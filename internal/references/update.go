package references

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Update reads the current references of an object. It reports each object that gains its first
// referrer or loses its last one as a result. If the selection of such an object changes, Update
// updates that object too.
func (g *Graph) Update(k event.Key) {
	if !g.Enabled() {
		return
	}
	g.updating.Lock()
	defer g.updating.Unlock()
	for due := []event.Key{k}; len(due) > 0; {
		k, due = due[0], due[1:]
		if refs, known := g.objects.References(k); known {
			due = append(due, g.apply(k, refs)...)
		}
	}
}

// Forget drops the references of all objects of a resource that the cluster no longer serves.
func (g *Graph) Forget(gr schema.GroupResource) {
	for _, k := range g.Sources(gr) {
		g.updating.Lock()
		changed := g.apply(k, nil)
		g.updating.Unlock()
		for _, next := range changed {
			g.Update(next)
		}
	}
}

// apply records the references of an object, and returns the objects whose selection changes as a
// result.
func (g *Graph) apply(k event.Key, refs []event.Reference) (changed []event.Key) {
	for _, t := range g.set(k, refs) {
		r, ok := g.resource(t.kind)
		if !ok {
			continue
		}
		if next := r.Key(t.namespace, t.name); g.objects.ReferenceChanged(next) {
			changed = append(changed, next)
		}
	}
	return changed
}

// targets resolves the references of an object. It also returns targets of unknown kinds, because
// such a kind might be defined later. The caller must hold mu until it has recorded the targets. Otherwise
// Learn could miss targets that were resolved before it changed the kinds.
func (g *Graph) targets(k event.Key, refs []event.Reference) []target {
	var all []target
	seen := make(map[target]struct{}, len(refs))
	for _, ref := range refs {
		gk := ref.GroupKind()
		if _, ok := g.wanted[gk]; !ok {
			g.wanted[gk] = 0
			if _, ok := g.known[gk]; ok {
				g.complete.Store(false) // until the kind is watched and has synced
			}
			select {
			case g.more <- struct{}{}:
			default:
			}
		}
		t := target{kind: gk, namespace: ref.Namespace, name: ref.Name}
		if r, ok := g.known[gk]; ok && !r.Namespaced {
			t.namespace = ""
		} else if t.namespace == "" {
			t.namespace = k.Namespace // owners are in the same namespace, or cluster-scoped
		}
		if _, ok := seen[t]; !ok {
			seen[t] = struct{}{}
			all = append(all, t)
		}
	}
	return all
}

// set replaces the recorded references of an object. refs is nil if the object has none. set returns the
// targets that gained their first reference and the targets that lost their last one.
func (g *Graph) set(k event.Key, refs []event.Reference) (changed []target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr, targets := k.GroupResource(), g.targets(k, refs)
	now := make(map[target]struct{}, len(targets))
	for _, t := range targets {
		now[t] = struct{}{}
		if g.referrer[t] == nil {
			g.referrer[t] = map[event.Key]struct{}{}
			g.wanted[t.kind]++
			changed = append(changed, t)
		}
		g.referrer[t][k] = struct{}{}
	}
	for _, t := range g.referred[gr][k] {
		if _, ok := now[t]; ok {
			continue
		}
		delete(g.referrer[t], k)
		if len(g.referrer[t]) == 0 {
			delete(g.referrer, t)
			g.wanted[t.kind]--
			g.forgetKind(t.kind)
			changed = append(changed, t)
		}
	}
	for _, t := range changed {
		if r, ok := g.known[t.kind]; ok {
			g.objects.ReferencesChanging(r.GroupResource())
		}
	}
	if len(g.referrer) == 0 {
		g.referrer = map[target]map[event.Key]struct{}{} // a map does not shrink
	}
	switch of := g.referred[gr]; {
	case len(targets) > 0 && of == nil:
		g.referred[gr] = map[event.Key][]target{k: targets}
	case len(targets) > 0:
		of[k] = targets
	case len(of) > 1:
		delete(of, k)
	default:
		if _, last := of[k]; last {
			delete(g.referred, gr)
		}
	}
	return changed
}

// forgetKind forgets a kind if the cluster does not serve it and nothing refers to it. Otherwise
// memory would grow, because objects can refer to any number of kinds.
func (g *Graph) forgetKind(gk schema.GroupKind) {
	if _, served := g.known[gk]; !served && g.wanted[gk] == 0 {
		delete(g.wanted, gk)
	}
}
