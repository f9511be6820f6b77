package informers

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/references"
)

// referring implements [references.Objects] for a Set.
type referring struct{ *Set }

var _ references.Objects = referring{}

// References implements [references.Objects].
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
		return nil, true // an unselected object selects no other object, even if its references are known
	default:
		return o.References, true
	}
}

// Find implements [references.Objects].
func (s referring) Find(k event.Key) (*event.Object, references.Presence) {
	w := s.watchedFor(k.GroupResource())
	if w == nil {
		return nil, references.Unwatched
	}
	i := w.informer(k)
	switch {
	case i == nil && (!w.listed() || s.willCover(w, k.Namespace)):
		return nil, references.Pending
	case i == nil: // access is denied, or the namespace is not selected
		return nil, references.Settled
	case !i.synced() && i.status().Failing == nil:
		return nil, references.Pending
	case !i.synced():
		return nil, references.Settled
	}
	return i.get(k), references.Settled
}

// willCover reports whether an informer of a namespace without an informer starts soon: the namespace was
// just selected, and access is not denied.
func (s *Set) willCover(w *watched, namespace string) bool {
	everywhere, isDenied := w.alignment.Load().denied[""]
	isDenied = isDenied && !errors.Is(everywhere.err, discovery.ErrNotListed) || w.isDenied(namespace)
	return !isDenied && s.namespaces.Selects(namespace)
}

// ReferencesChanging implements [references.Objects].
func (s referring) ReferencesChanging(gr schema.GroupResource) {
	if w := s.watchedFor(gr); w != nil && w.followed {
		s.reselect(w)
	}
}

// ReferenceChanged implements [references.Objects].
func (s referring) ReferenceChanged(k event.Key) bool {
	w := s.watchedFor(k.GroupResource())
	if w == nil || !w.followed {
		return false
	}
	s.enqueue(k)
	return true
}

// updateReferences updates the references of all objects of an informer that has just synced.
func (s *Set) updateReferences(w *watched, i *informer) {
	if !s.references.Enabled() {
		return
	}
	for k := range i.keys() {
		s.references.Update(k)
	}
	for _, k := range s.references.Sources(w.groupResource()) {
		if i.covers(k) {
			s.references.Update(k) // the object might have been deleted, and then it refers to nothing
		}
	}
	s.completeReferences()
}

// completeReferences checks whether every object that can refer to others is known. When this
// becomes true, completeReferences enqueues all objects of the resources that are selected by
// reference.
func (s *Set) completeReferences() {
	if !s.references.Complete(s.referencesListed) {
		return
	}
	s.eachWatched(func(w *watched) {
		if !w.followed {
			return
		}
		for k := range w.keys() {
			s.EnqueueLowPriority(k)
		}
		s.config.Compare(w.groupResource())
	})
	s.config.Discovered() // the bus might have objects of a resource that is no longer watched
}

func (s *Set) referencesListed() bool {
	s.mu.RLock()
	// A group whose discovery failed, or a resource that is being restarted, might have objects that refer
	// to others.
	complete := s.answer != nil && len(s.answer.Catalog.Failed) == 0 && !s.restarting
	all := slices.Collect(maps.Values(s.watched.All()))
	s.mu.RUnlock()
	complete = complete && !slices.ContainsFunc(all, func(w *watched) bool { return !w.listed() })
	for _, r := range s.references.Resources() {
		complete = complete && s.watchedFor(r.GroupResource()) != nil
	}
	return complete
}

// ForgetReferences forgets the references of a resource's objects. Call it when the cluster no
// longer serves the resource.
func (s *Set) ForgetReferences(gr schema.GroupResource) { s.references.Forget(gr) }

// byOwner is the name of the index of objects by the UIDs of their controllers.
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

// describeOwners adds the owners of the live object and of the tombstones to a view.
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

// enqueueOwned enqueues every object that an object of the informer owns, directly or indirectly.
// These objects might be waiting for their owner to be listed.
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
				objects, _ := i.shared.GetIndexer().ByIndex(byOwner, uid) // no error: the index exists
				for _, o := range objects {
					o := o.(*event.Object)
					s.EnqueueLowPriority(of.resource.Key(o.Namespace, o.Name))
					due = append(due, string(o.UID))
				}
			}
		})
	}
}
