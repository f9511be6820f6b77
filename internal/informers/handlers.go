package informers

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// onAdd, onUpdate, and onDelete handle the notifications of client-go. initial means that the
// object was in the first list.
func (s *Set) onAdd(i *informer, o *event.Object, initial bool) {
	k := i.of.resource.Key(o.Namespace, o.Name)
	i.count.Change(nil, o)
	s.references.Update(k)
	enqueue := s.enqueue
	if initial {
		enqueue = s.EnqueueLowPriority
	}
	if o.Unselected || !s.selects(k) {
		if !o.Unselected {
			s.ledger.ForgetObject(k, string(o.UID))
		}
		enqueue(k) // the bus might have the object
		return
	}
	cause, first := event.CauseWatch, false
	if initial {
		if s.config.Standby && !i.of.joined.Load() {
			s.ledger.ForgetObject(k, string(o.UID))
			if !i.of.joined.Load() { // otherwise begin might have added the object to the first sync meanwhile
				return // begin enqueues the key when the next term starts
			}
		}
		// If a namespace is selected later, its objects do not belong to the first sync.
		cause, first = event.CauseReconcile, i.of.firstSync.IsListing()
		if first {
			cause = event.CauseSnapshot
		}
	}
	s.ledger.Observe(k, nil, o, cause, first, s.config.Now())
	enqueue(k)
	if first {
		failpoint.Hit("first-sync")
	}
}

func (s *Set) onUpdate(i *informer, old, o *event.Object) {
	k := i.of.resource.Key(o.Namespace, o.Name)
	if old.UID != o.UID { // a delete and a create, merged by the watch cache or by a relist
		s.ledger.AddTombstone(k, event.Tombstone{UID: string(old.UID), Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	if old != o {
		i.count.Change(old, o)
		s.references.Update(k)
	}
	if old.UID == o.UID && old.ResourceVersion == o.ResourceVersion { // a resync, or a list
		s.EnqueueLowPriority(k)
		return
	}
	switch {
	case !o.Unselected && !s.selects(k):
		s.ledger.ForgetObject(k, string(o.UID))
	case !o.Unselected:
		var before *event.Object // nil on a standby, because the bus might have another state
		if old.UID == o.UID && s.hasJoined(k) {
			before = kept(old)
		}
		s.ledger.Observe(k, before, o, event.CauseWatch, false, s.config.Now())
	case !old.Unselected && old.UID == o.UID:
		s.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(old)})
	}
	s.enqueue(k)
}

func (s *Set) onDelete(i *informer, deleted any) {
	missed, wasMissed := deleted.(cache.DeletedFinalStateUnknown)
	if wasMissed {
		deleted = missed.Obj // the watch missed the delete, and a later list showed it
	}
	o, ok := deleted.(*event.Object)
	if !ok { // client-go lost the object; reconciliation finds the delete
		i.count.Change(&event.Object{Namespace: i.key(missed.Key).Namespace}, nil)
		s.reselect(i.of)
		s.config.Compare(i.of.resource.GroupResource())
		return
	}
	k := i.of.resource.Key(o.Namespace, o.Name)
	i.count.Change(o, nil)
	s.ledger.AddTombstone(k, event.Tombstone{UID: string(o.UID), Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(o)})
	s.references.Update(k)
	s.Settled(k) // the first sync might have waited only for this object
	s.enqueue(k)
}

// watchFailed handles an error of a list or a watch. It logs the error only if the reason differs
// from that of the previous error.
func (s *Set) watchFailed(i *informer, err error) {
	if apistream.IsExpected(err) {
		return
	}
	i.history.Doubt()
	err = refusal.Explain(err)
	switch {
	case apierrors.IsForbidden(err) && i.namespace == "" && i.of.resource.Namespaced:
		err = fmt.Errorf("%w; if only some namespaces are readable, name them in KUBERELAY_NAMESPACES", err)
	case apierrors.IsBadRequest(err) && s.config.FieldSelector != "":
		err = fmt.Errorf("%w; every watched resource must support the fields in KUBERELAY_FIELD_SELECTOR", err)
	}
	if !i.setFailing(err, s.config.Now()) {
		return
	}
	if apierrors.IsForbidden(err) {
		i.of.requestAlign() // some namespaces might still be readable
	}
	if apierrors.IsNotFound(err) {
		signal(s.refused) // the resource might be served in another version, or not at all
	}
	if s.references.FollowsOwners() && !i.synced() {
		s.EnqueueAll() // objects might wait for owners that this list would have contained
	}
	s.log.Warn("watch failed, retrying", "resource", i.of.resource.GroupResource().String(), "namespace", i.namespace, "err", err)
}
