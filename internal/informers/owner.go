package informers

import (
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/event"
)

// byOwner is the index of objects by the UIDs of their owners.
const byOwner = "owner"

func (s *Set) indexers() cache.Indexers {
	if !s.follow.owners {
		return cache.Indexers{}
	}
	return cache.Indexers{byOwner: func(o any) ([]string, error) {
		var uids []string
		if o, ok := o.(*event.Object); ok {
			for _, ref := range o.References {
				if ref.Controller {
					uids = append(uids, ref.UID)
				}
			}
		}
		return uids, nil
	}}
}

// longestChain bounds how far owners are followed: a cycle of owners is nothing that
// Kubernetes prevents.
const longestChain = 16

// owner gives the controller at the top of an object's owners, as far as they are known,
// nil if it has none. It is false while one of them may yet be listed.
func (s *Set) owner(k event.Key, o *event.Object) (*event.Owner, bool) {
	if !s.follow.owners {
		return nil, true
	}
	var top *event.Owner
	for range longestChain {
		n := slices.IndexFunc(o.References, func(r event.Reference) bool { return r.Controller })
		if n < 0 {
			return top, true
		}
		ref := o.References[n]
		top = &event.Owner{Kind: ref.Kind, Name: ref.Name}
		r, ok := s.follow.resource(ref.GroupKind())
		if !ok {
			return top, true
		}
		namespace := k.Namespace
		if !r.Namespaced {
			namespace = ""
		}
		k = r.Key(namespace, ref.Name)
		w := s.watchedFor(k.GroupResource())
		if w == nil {
			return top, o.Unselected // it is about to be started, unless who refers to it counts for nothing
		}
		i := w.informer(k)
		if i == nil {
			return top, w.listed() // we may not
		}
		if !i.synced() {
			return top, i.status().Failing != nil
		}
		if o = i.get(k); o == nil || string(o.UID) != ref.UID {
			return top, true
		}
	}
	return top, true
}

// describeOwners completes a view.
func (s *Set) describeOwners(k event.Key, v *event.View) {
	if !s.follow.owners {
		return
	}
	if v.Live != nil {
		owner, known := s.owner(k, v.Live)
		v.Owner, v.Hold = owner, !known
	}
	for n, t := range v.Tombstones {
		if t.Object != nil {
			v.Tombstones[n].Owner, _ = s.owner(k, t.Object)
		}
	}
}

// dependents enqueues the objects that may have waited for what an informer has listed now:
// those that it owns, and those that these own.
func (s *Set) dependents(i *informer) {
	if !s.follow.owners {
		return
	}
	var due []string // UIDs
	for _, o := range i.shared.GetStore().List() {
		due = append(due, string(o.(*event.Object).UID))
	}
	for seen := map[string]bool{}; len(due) > 0; {
		uid := due[len(due)-1]
		due = due[:len(due)-1]
		if seen[uid] {
			continue
		}
		seen[uid] = true
		s.eachWatched(func(of *watched) {
			for _, i := range of.all() {
				objects, _ := i.shared.GetIndexer().ByIndex(byOwner, uid) // there is such an index
				for _, o := range objects {
					o := o.(*event.Object)
					s.enqueueBehind(of.resource.Key(o.Namespace, o.Name))
					due = append(due, string(o.UID))
				}
			}
		})
	}
}
