package forward

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Reason names the row of the decision table that applied. It is a label of the
// metrics.
type Reason string

// The rows, in the order in which they are tried. «Live» is the object in the
// indexer, «acked» the last event of the key that the bus has acknowledged.
const (
	// ReasonDeleted: acked shows a UID as existing that has a tombstone.
	ReasonDeleted Reason = "deleted"
	// ReasonDeselected: likewise, and the UID exists, but is no longer selected.
	ReasonDeselected Reason = "deselected"
	// ReasonUncertain: a UID is gone that the bus may show as existing, because
	// nobody answered when it was published.
	ReasonUncertain Reason = "uncertain"
	// ReasonGone: nothing live, and the bus holds nothing or a delete.
	ReasonGone Reason = "gone"
	// ReasonAwait: acked shows a UID as existing that is not live, without a
	// tombstone. The informer's notification, or the reconciler's proof, is on
	// its way; a missing entry alone is not proof of a delete.
	ReasonAwait Reason = "await"
	// ReasonHold: an owner of the live UID is not known yet, but will be.
	ReasonHold Reason = "hold"
	// ReasonUnchanged: the bus holds exactly this state, or one that differs from it only
	// in what is not sent.
	ReasonUnchanged Reason = "unchanged"
	// ReasonStale: the bus holds a later state than the indexer shows; someone
	// else wrote it, and our watch will bring it too.
	ReasonStale Reason = "stale"
	// ReasonProjected: the bus holds exactly this state, but of its content another part
	// than is sent now.
	ReasonProjected Reason = "projected"
	// ReasonUpdated: the bus holds an earlier state of the live UID.
	ReasonUpdated Reason = "updated"
	// ReasonCreated: the bus holds nothing of the live UID.
	ReasonCreated Reason = "created"
)

// Decide says what the bus must be told of one key, given what the informers
// know (v) and what the bus holds (acked). The change is nil where that is
// nothing; else Object is nil exactly where the delete was inferred and only the
// bus knows the last state. It is a pure function: the table of section «The
// decision» in docs/delivery.md, and nothing else.
//
// One call gives at most one change. After a delete the caller asks again: the
// name may have been taken by another UID.
//
// Attempted is the UID of an earlier publish that nobody answered, "" for none. If
// it is gone now, and the bus may or may not show it, it is published once more, so
// that it is certain, and its delete is due after that.
func Decide(v event.View, acked event.Acked, attempted string) (*event.Change, Reason) {
	if acked.Live() {
		if t, gone := v.Tombstone(acked.UID); gone {
			return deletion(v, t, acked)
		}
	}
	if t, gone := v.Tombstone(attempted); gone && t.Object != nil && !acked.Live() {
		c := &event.Change{
			Type: created(v), Cause: t.Cause, Object: t.Object, Owner: t.Owner, Epoch: v.Epoch, Observed: t.Observed,
		}
		if acked.UID == attempted { // it left what is selected, and was back
			c.Previous = acked.ResourceVersion
			if acked.Deselected && t.Object.ResourceVersion == acked.ResourceVersion {
				c.After = acked.Position
			}
		}
		return c, ReasonUncertain
	}
	switch live := v.Live; {
	case failpoint.Bug("forget-uid") && live != nil && acked.Live() && live.ResourceVersion != acked.ResourceVersion:
		return change(v, event.Updated, acked.ResourceVersion), ReasonUpdated
	case failpoint.Bug("missing-is-deleted") && live == nil && acked.Live():
		return &event.Change{Type: event.Deleted, Cause: event.CauseReconcile, Epoch: v.Epoch, Previous: acked.ResourceVersion, Observed: v.Observed}, ReasonDeleted
	case failpoint.Bug("overwrite-newer") && live != nil && acked.Live() && live.ResourceVersion != acked.ResourceVersion:
		return change(v, event.Updated, acked.ResourceVersion), ReasonUpdated
	case failpoint.Bug("publish-unchanged") && live != nil && acked.Live() && live.ResourceVersion == acked.ResourceVersion:
		return change(v, event.Updated, acked.ResourceVersion), ReasonUpdated
	case live == nil && (acked.Live() || attempted != ""):
		return nil, ReasonAwait
	case live == nil:
		return nil, ReasonGone
	case v.Hold:
		return nil, ReasonHold
	case acked.UID == "":
		return change(v, created(v), ""), ReasonCreated
	case acked.Live() && acked.UID != string(live.UID):
		return nil, ReasonAwait
	case !acked.Deleted && live.ResourceVersion == acked.ResourceVersion && (live.Digest == acked.Digest || acked.Digest.None() && !live.Cut):
		return nil, ReasonUnchanged
	case !acked.Deleted && live.ResourceVersion == acked.ResourceVersion && v.Epoch >= acked.Epoch:
		c := update(v, acked)
		c.After = acked.Position
		return c, ReasonProjected
	case acked.Deselected && acked.UID == string(live.UID) && live.ResourceVersion == acked.ResourceVersion && v.Epoch >= acked.Epoch:
		c := change(v, created(v), acked.ResourceVersion) // it is selected again
		c.After = acked.Position
		return c, ReasonCreated
	case !later(v, acked):
		return nil, ReasonStale
	case acked.Deleted:
		previous := "" // another object's versions are not this one's
		if acked.UID == string(live.UID) {
			previous = acked.ResourceVersion // it left the selection and is back
		}
		return change(v, created(v), previous), ReasonCreated
	case !live.Digest.None() && live.Digest == acked.Digest && v.Epoch == acked.Epoch && !failpoint.Bug("ignore-digest"):
		return nil, ReasonUnchanged
	default:
		return update(v, acked), ReasonUpdated
	}
}

// deletion takes the last state of the tombstone, unless the bus has a later one: the
// watch may have missed the last changes, and another writer may not.
func deletion(v event.View, t event.Tombstone, acked event.Acked) (*event.Change, Reason) {
	if t.Object != nil {
		order, err := resourceversion.CompareResourceVersion(t.Object.ResourceVersion, acked.ResourceVersion)
		if err == nil && order < 0 && v.Epoch == acked.Epoch {
			t.Object = nil
		}
	}
	c := &event.Change{
		Type: event.Deleted, Cause: t.Cause, Object: t.Object, Owner: t.Owner,
		Epoch: v.Epoch, Previous: acked.ResourceVersion, Observed: t.Observed,
	}
	if t.Object == nil {
		c.Epoch = acked.Epoch // it has the version of that, too
	}
	if !t.Deselected || failpoint.Bug("deselected-is-deleted") {
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

func update(v event.View, acked event.Acked) *event.Change {
	c := change(v, event.Updated, acked.ResourceVersion)
	if failpoint.Bug("compare-with-last-seen") && v.Before != nil {
		seen := *v.Before
		seen.ResourceVersion = acked.ResourceVersion
		c.Before = &seen
	}
	if b := v.Before; b != nil && string(b.UID) == acked.UID && b.ResourceVersion == acked.ResourceVersion && b.Digest == acked.Digest {
		c.Before = b
	}
	return c
}

func created(v event.View) event.Type {
	if v.FirstSync {
		return event.Snapshot
	}
	return event.Created
}

// later tells whether the live object is a later state than the acknowledged one.
// ResourceVersions of one resource are ordered (KEP-5504); where an aggregated
// API server does not keep to that, any other version counts as later, since
// there is no telling.
//
// In a later epoch of the cluster's history every state is later, whatever its
// number.
func later(v event.View, acked event.Acked) bool {
	if v.Epoch != acked.Epoch {
		return v.Epoch > acked.Epoch
	}
	order, err := resourceversion.CompareResourceVersion(v.Live.ResourceVersion, acked.ResourceVersion)
	return err != nil || order > 0
}
