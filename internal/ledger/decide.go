package ledger

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// Reason names the row of the decision table that applied. It is a metric label.
type Reason string

// The rows of the decision table. "Live" is the object in the indexer. "Acked" is the last event
// of the key that the bus acknowledged.
const (
	// ReasonDeleted: acked shows a UID as existing, and that UID has a tombstone.
	ReasonDeleted Reason = "deleted"
	// ReasonDeselected: acked shows a UID as existing, and that UID has a tombstone because the
	// object is no longer selected. The object might still exist.
	ReasonDeselected Reason = "deselected"
	// ReasonUncertain: a publish of a UID is unacknowledged. Either the bus might show a UID that is
	// gone or that the informers have forgotten, or the bus had the current state before that
	// publish and might have another state now.
	ReasonUncertain Reason = "uncertain"
	// ReasonGone: no live object exists, and the bus holds nothing or a delete.
	ReasonGone Reason = "gone"
	// ReasonAwait: acked shows a UID as existing, but the UID is not live and has no tombstone. A
	// missing object alone does not prove a delete. A notification from the informer or proof from
	// the reconciler follows.
	ReasonAwait Reason = "await"
	// ReasonHold: an owner of the live object is not known yet.
	ReasonHold Reason = "hold"
	// ReasonUnchanged: the bus holds the live state, or a state that differs from it only in
	// unpublished fields.
	ReasonUnchanged Reason = "unchanged"
	// ReasonStale: the bus holds a later state than the indexer. Another writer published that
	// state, and our watch will receive it too. The object might be missing from the indexer.
	ReasonStale Reason = "stale"
	// ReasonDenied: the bus has a delete of the live object, at the live version or at a version
	// that is not trusted. Either the watch is behind, or the object outlived the delete: the
	// object left a selector, its CustomResourceDefinition was recreated, or the delete was
	// inferred. A consistent read decides which case applies.
	ReasonDenied Reason = "denied"
	// ReasonProjected: the bus holds the live version with a different digest, because the
	// projection changed or the API server serves the object differently. A comparison with the
	// state on the bus might still find that only the text differs.
	ReasonProjected Reason = "projected"
	// ReasonUpdated: the bus holds an earlier state of the live UID.
	ReasonUpdated Reason = "updated"
	// ReasonCreated: the bus holds no live state of the live UID.
	ReasonCreated Reason = "created"
)

// Decide returns the change to publish for one key, and the reason. Decide is a pure function.
// The section "The decision" in docs/delivery.md contains the decision table. The comments of the
// reasons describe the cases that the table leaves out.
//
// The change is nil if there is nothing to publish. Its Object is nil if the delete was
// inferred, because then only the bus has the last state.
//
// One call returns at most one change. After a delete, the caller calls Decide again, because
// another UID might have taken the name.
//
// The attempted UID is the UID of an unacknowledged publish. If the informers have forgotten it,
// Decide returns the unacknowledged change again. If it is gone and the bus might show it, Decide
// returns its last state once more, so that the bus certainly has the UID. The delete follows. If it
// is live, the bus might have a later event than the acknowledged one, so Decide returns a change even
// if the acknowledged event has the live state.
func Decide(v event.View) (*event.Change, Reason) {
	acked, attempted := v.Acked, v.Attempted
	if acked.Epoch > v.Epoch { // the informers still show the state before an etcd restore
		return nil, ReasonStale
	}
	if acked.Live() {
		if t, gone := v.Tombstone(acked.UID); gone {
			if !(t.Confirmed && t.Contradicts == acked.Position) && isOutdated(v, t, acked) {
				return nil, ReasonStale
			}
			return deletion(v, t, acked)
		}
	}
	if t, gone := v.Tombstone(attempted); gone && t.Object != nil && !acked.Live() {
		if v.Unanswered != nil && precedes(t.Object, v, acked) { // the tombstone is older than the last known event
			return again(v), ReasonUncertain
		}
		c := &event.Change{
			Type: created(v), Cause: t.Cause, Object: t.Object, Owner: t.Owner, Epoch: v.Epoch, Observed: t.Observed,
		}
		if acked.UID == attempted { // the object was deselected, and then selected again
			c.Previous = acked.ResourceVersion
			if acked.Deleted && t.Object.ResourceVersion == acked.ResourceVersion {
				c.After = acked.Position
			}
		}
		return c, ReasonUncertain
	}
	switch live := v.Live; {
	case live == nil && v.Unanswered != nil && attempted != "" && !acked.Live():
		return again(v), ReasonUncertain
	case live == nil && acked.Live():
		return nil, ReasonAwait
	case live == nil:
		return nil, ReasonGone
	case v.Hold:
		return nil, ReasonHold
	case acked.UID == "":
		return change(v, created(v), ""), ReasonCreated
	case acked.Live() && acked.UID != string(live.UID):
		return nil, ReasonAwait
	case !acked.Deleted && live.ResourceVersion == acked.ResourceVersion && live.Digest == acked.Digest && attempted == string(live.UID) && v.Epoch == acked.Epoch:
		c := update(v, acked, attempted)
		c.After = acked.Position
		return c, ReasonUncertain
	case !acked.Deleted && live.ResourceVersion == acked.ResourceVersion && live.Digest == acked.Digest:
		return nil, ReasonUnchanged
	case !acked.Deleted && live.ResourceVersion == acked.ResourceVersion && v.Epoch >= acked.Epoch:
		c := update(v, acked, attempted)
		c.After = acked.Position
		return c, ReasonProjected
	case acked.Deselected && acked.UID == string(live.UID) && live.ResourceVersion == acked.ResourceVersion && v.Epoch >= acked.Epoch:
		c := change(v, created(v), acked.ResourceVersion) // the object is selected again
		c.After = acked.Position
		return c, ReasonCreated
	case isDenied(v, acked) && (v.Outlived.Position != acked.Position || isStale(v)):
		return nil, ReasonDenied
	case isDenied(v, acked):
		c := recreated(v, acked)
		c.After = acked.Position
		return c, ReasonCreated
	case !later(v, acked):
		return nil, ReasonStale
	case acked.Deleted:
		return recreated(v, acked), ReasonCreated
	case live.Digest.Projected() && live.Digest == acked.Digest && v.Epoch == acked.Epoch && attempted != string(live.UID):
		return nil, ReasonUnchanged
	default:
		return update(v, acked, attempted), ReasonUpdated
	}
}

// isDenied reports whether the bus has a removal at the live object's version, or a removal of the
// live UID at an unknown version.
func isDenied(v event.View, acked event.Acked) bool {
	isSame := v.Live.ResourceVersion == acked.ResourceVersion && v.Epoch == acked.Epoch
	return acked.Deleted && isSame || acked.IsUnversioned(string(v.Live.UID))
}

// isOutdated reports whether a tombstone might precede the state on the bus: its object might have left the
// selection and returned before that state. Within an epoch, this is possible until the informers reach the
// version on the bus. If the informers have no version, because they have ended or have not listed yet, the
// version of the tombstone's last state decides. Without a last state, the result is then true. A resource
// that is no longer watched has no informer that could still show the object.
func isOutdated(v event.View, t event.Tombstone, acked event.Acked) bool {
	version := v.Version
	if v.Resource == (event.Resource{}) {
		return false
	}
	if version == "" && t.Object != nil {
		version = t.Object.ResourceVersion
	}
	return v.Epoch == acked.Epoch && (version == "" || revision.IsEarlier(version, acked.ResourceVersion))
}

// precedes reports whether a state from the informers is earlier than the last known event.
func precedes(o *event.Object, v event.View, acked event.Acked) bool {
	return v.Epoch == acked.Epoch && revision.IsEarlier(o.ResourceVersion, acked.ResourceVersion)
}

// deletion returns the removal of a UID with a tombstone. The removal contains the last state of
// the tombstone, unless the bus has a later state: our watch might have missed the last changes, and
// another writer might have published them.
func deletion(v event.View, t event.Tombstone, acked event.Acked) (*event.Change, Reason) {
	if t.Object != nil && precedes(t.Object, v, acked) {
		t.Object = nil
	}
	c := &event.Change{
		Type: event.Deleted, Cause: t.Cause, Object: t.Object, Owner: t.Owner,
		Epoch: v.Epoch, Previous: acked.ResourceVersion, Observed: t.Observed,
	}
	if t.Object == nil {
		c.Epoch = acked.Epoch // the version comes from acked too
	}
	if !t.Deselected {
		return c, ReasonDeleted
	}
	c.Type, c.After = event.Deselected, acked.Position
	return c, ReasonDeselected
}

func change(v event.View, t event.Type, previous string) *event.Change {
	return &event.Change{
		Type: t, Cause: v.Cause, Object: v.Live, Owner: v.Owner,
		Epoch: v.Epoch, Previous: previous, Observed: v.Observed,
	}
}

func update(v event.View, acked event.Acked, attempted string) *event.Change {
	c := change(v, event.Updated, acked.ResourceVersion)
	c.Uncertain = attempted == string(v.Live.UID)
	if b := v.Before; b != nil && string(b.UID) == acked.UID && b.ResourceVersion == acked.ResourceVersion && b.Digest == acked.Digest {
		c.Before = b
	}
	return c
}

// again returns the unacknowledged change, although the informers might have forgotten its object. If the bus
// showed the object before the change but no longer does, the object is created again.
func again(v event.View) *event.Change {
	c := *v.Unanswered
	if c.Type == event.Updated {
		c.Type, c.Before, c.Previous = created(v), nil, ""
		if v.Acked.UID == v.Attempted {
			c.Previous = v.Acked.ResourceVersion
		}
	}
	return &c
}

// recreated returns the first change after a delete.
func recreated(v event.View, acked event.Acked) *event.Change {
	previous := "" // the versions of another UID do not precede this one
	if acked.UID == string(v.Live.UID) {
		previous = acked.ResourceVersion // the object was selected again, or outlived the delete
	}
	return change(v, created(v), previous)
}

func created(v event.View) event.Type {
	if v.FirstSync {
		return event.Snapshot
	}
	return event.Created
}

// later reports whether the live object is a later state than the acknowledged one.
//
// Within an epoch, the resourceVersions of one resource are ordered (KEP-5504). An aggregated API
// server might serve versions that cannot be compared. Then any other version counts as later.
//
// Every state of a later epoch is later, whatever its version. No epoch can follow
// [event.LastEpoch], so within that epoch any other version counts as later.
func later(v event.View, acked event.Acked) bool {
	if v.Epoch != acked.Epoch {
		return v.Epoch > acked.Epoch
	}
	if v.Epoch == event.LastEpoch {
		return v.Live.ResourceVersion != acked.ResourceVersion
	}
	order, err := resourceversion.CompareResourceVersion(v.Live.ResourceVersion, acked.ResourceVersion)
	return err != nil || order > 0
}
