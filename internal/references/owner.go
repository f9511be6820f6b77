package references

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Presence says what the informers know of an object.
type Presence int

// What [Objects] may say of an object.
const (
	Settled   Presence = iota // they have it, or it is certain that they will not
	Pending                   // a list in progress may have it
	Unwatched                 // nothing watches its resource yet
)

// maxOwners bounds the walk from owner to owner: Kubernetes does not prevent cycles.
const maxOwners = 16

// Owner returns the controller at the top of an object's owners, as far as they are known,
// nil if it has none or owners are not followed. It returns false while a list in progress
// may have one of them.
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
			return top, o.Unselected // its watch is about to start, unless the object that refers to it is not selected
		case presence == Pending:
			return top, false
		case owner == nil || string(owner.UID) != ref.UID:
			return top, true
		}
		o = owner
	}
	return top, true
}
