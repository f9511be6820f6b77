package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/references"
)

// referring is the objects of a Set as a [references.Graph] sees them.
type referring struct{ *Set }

var _ references.Objects = referring{}

// References is part of [references.Objects].
func (s referring) References(k event.Key) ([]event.Reference, bool) {
	w := s.watchedFor(k.GroupResource())
	if w == nil {
		return nil, false
	}
	if !s.selects(k) {
		return nil, true
	}
	i := w.informer(k)
	if i == nil {
		return nil, false
	}
	switch o := i.get(k); {
	case o == nil:
		return nil, i.synced()
	case o.Unselected:
		return nil, true // its owners are known, but it selects nothing
	default:
		return o.References, true
	}
}

// Find is part of [references.Objects].
func (s referring) Find(k event.Key) (*event.Object, references.Presence) {
	w := s.watchedFor(k.GroupResource())
	if w == nil {
		return nil, references.Unwatched
	}
	i := w.informer(k)
	switch {
	case i == nil && !w.listed():
		return nil, references.Pending
	case i == nil: // access is denied
		return nil, references.Settled
	case !i.synced() && i.status().Failing == nil:
		return nil, references.Pending
	case !i.synced():
		return nil, references.Settled
	}
	return i.get(k), references.Settled
}

// ReferenceChanged is part of [references.Objects].
func (s referring) ReferenceChanged(k event.Key) bool {
	w := s.watchedFor(k.GroupResource())
	if w == nil || !w.followed {
		return false
	}
	s.reselect(w)
	s.enqueue(k)
	return true
}

// updateReferences finds out what all objects of an informer refer to, once it has synced.
func (s *Set) updateReferences(w *watched, i *informer) {
	if !s.references.Enabled() {
		return
	}
	for _, name := range i.shared.GetStore().ListKeys() {
		s.references.Update(i.key(name))
	}
	for _, k := range s.references.Sources(w.groupResource()) {
		if i.namespace == "" || i.namespace == k.Namespace {
			s.references.Update(k) // an object that is gone refers to nothing
		}
	}
	s.completeReferences()
}

// completeReferences finds out whether every object that may refer to others is known. If
// that is new, all objects that are selected by reference are looked at again.
func (s *Set) completeReferences() {
	if !s.references.Complete(s.referencesListed) {
		return
	}
	s.eachWatched(func(w *watched) {
		if !w.followed {
			return
		}
		for _, i := range w.all() {
			for _, name := range i.shared.GetStore().ListKeys() {
				s.EnqueueLowPriority(i.key(name))
			}
		}
		s.config.Compare(w.groupResource())
	})
	s.config.Discovered() // an object that nothing refers to any more may be of a resource that nothing watches
}

func (s *Set) referencesListed() bool {
	a := s.lastAnswer()
	// A group that fails may have objects that refer to others.
	complete := a != nil && len(a.catalog.Failed) == 0
	s.eachWatched(func(w *watched) { complete = complete && w.listed() })
	for _, r := range s.references.Resources() {
		complete = complete && s.watchedFor(r.GroupResource()) != nil
	}
	return complete
}

// startReferenced starts watching resources that are referred to for the first time.
func (s *Set) startReferenced(ctx context.Context) {
	if a := s.lastAnswer(); a != nil {
		s.apply(ctx, a)
		s.completeReferences()
	}
}

// ForgetReferences says that a resource is gone: its objects refer to nothing.
func (s *Set) ForgetReferences(gr schema.GroupResource) { s.references.Forget(gr) }

// byOwner is the index of objects by the UIDs of their controllers.
const byOwner = "owner"

func (s *Set) indexers() cache.Indexers {
	if !s.references.FollowsOwners() {
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

// describeOwners completes a view.
func (s *Set) describeOwners(k event.Key, v *event.View) {
	if !s.references.FollowsOwners() {
		return
	}
	if v.Live != nil {
		owner, known := s.references.Owner(k, v.Live)
		v.Owner, v.Hold = owner, !known
	}
	for n, t := range v.Tombstones {
		if t.Object != nil {
			v.Tombstones[n].Owner, _ = s.references.Owner(k, t.Object)
		}
	}
}

// enqueueOwned enqueues the objects that may have waited for what an informer has listed:
// those that it owns, and those that these own.
func (s *Set) enqueueOwned(i *informer) {
	if !s.references.FollowsOwners() {
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
					s.EnqueueLowPriority(of.resource.Key(o.Namespace, o.Name))
					due = append(due, string(o.UID))
				}
			}
		})
	}
}
