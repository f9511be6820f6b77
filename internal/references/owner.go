package references

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Presence tells whether the informers know if an object exists.
type Presence int

// The results of [Objects].Find.
const (
	Settled   Presence = iota // an informer shows the object, or no list that could show it is in progress
	Pending                   // a list in progress might contain the object
	Unwatched                 // no informer watches the object's resource yet
)

// maxOwners limits the walk from owner to owner, because Kubernetes does not prevent cycles.
const maxOwners = 16

// Owner returns the topmost known controller in the chain of an object's owners. It returns nil if
// the object has no controller, or if owners are not followed. It returns false if the
// next owner in the chain might not have been listed yet.
func (g *Graph) Owner(k event.Key, o *event.Object) (*event.Owner, bool) {
	if !g.owners {
		return nil, true
	}
	var top *event.Owner
	for range maxOwners {
		n := slices.IndexFunc(o.References, func(r event.Reference) bool { return r.Controller })
		if n < 0 {
			return top, true
		}
		ref := o.References[n]
		top = &event.Owner{Kind: ref.Kind, Name: ref.Name}
		r, ok := g.resource(ref.GroupKind())
		if !ok {
			return top, true
		}
		namespace := k.Namespace
		if !r.Namespaced {
			namespace = ""
		}
		k = r.Key(namespace, ref.Name)
		owner, presence := g.objects.Find(k)
		switch {
		case presence == Unwatched:
			return top, o.Unselected // the watch of the owner starts soon, unless o is not selected
		case presence == Pending:
			return top, false
		case owner == nil || string(owner.UID) != ref.UID:
			return top, true
		}
		o = owner
	}
	return top, true
}
