package ledger

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// An entry is foreign if another writer might have published the object's last event on the bus.
// These signs show the origin of the event:
//
//	an unacknowledged publish of ours     the event equals an attempt
//	another forwarder of this cluster     the event has the current state of the cluster, or a
//	                                      state between the last known and the current one
//	an earlier term or process            the new term loads the checkpoint again, and treats
//	                                      none of its entries as foreign
//	a bus that lost its latest events     the position is lower than the known position
//	a purge                               the bus has no event
//	a foreign writer                      anything else: the event contradicts the cluster,
//	                                      as a consistent read confirms
//
// Another forwarder's watch can be ahead of ours. If the consistent read finds no object, the decision
// waits until the informers have reported the version of the event. It doesn't wait for a version later
// than the read: the event was published before the read, so that version is forged.
//
// The answer to a foreign writer is a repair: the forwarder publishes the state of the object
// again, with a new ID. It repairs each foreign event once.

// ReasonForeign: the last event on the bus might come from another writer. The ledger adopts the event
// if its origin is legitimate. Otherwise a consistent read decides whether to publish the state of the
// object again.
const ReasonForeign Reason = "foreign"

// ReasonUnseen: the bus has an event from another writer, and the informers might still report the
// event's object or the delete of that object. The decision waits for that report.
const ReasonUnseen Reason = "unseen"

// DecideForeign is [Decide] for a foreign entry. shown is the event on the bus, or the zero value
// if the bus no longer has it. ours means that shown has the UID, version, and digest of one of
// this forwarder's attempts.
//
// If shown has the state of the object, or can come from an attempt or from another forwarder of this
// cluster, DecideForeign returns the entry to adopt. Otherwise it returns the change that repairs the
// event, or neither if it cannot decide yet.
func DecideForeign(k event.Key, v event.View, acked event.Acked, shown event.Stored, ours bool) (adopt *event.Acked, c *event.Change, reason Reason) {
	a, live := shown.Acked, v.Live
	tombstone, gone := v.Tombstone(acked.UID)
	gone = gone && acked.Live()
	switch {
	case ours && !(isPresent(v, a) && a.Digest == live.Digest): // the object has changed since, or is gone
		if !hasClaimedContent(shown, live) {
			a.Digest = event.Digest{} // possibly forged, so the next state is published even if it has this digest
		}
		return &a, nil, ReasonForeign
	case isState(v, shown):
		a.Digest = live.Digest
		return &a, nil, ReasonForeign
	case isBetween(acked, a, v):
		a.Digest = event.Digest{} // not trusted
		return &a, nil, ReasonForeign
	case gone && a.Deleted && a.UID == acked.UID && isLastState(shown, acked, tombstone):
		return removed(a, acked, tombstone.Object), nil, ReasonForeign
	case isOfAnother(acked, a, v):
		is := removed(a, acked, nil)
		if (a.UID != acked.UID || isFollowing(a, acked)) && isPast(a, v) {
			is.ResourceVersion, is.Epoch = a.ResourceVersion, a.Epoch
		}
		return is, nil, ReasonForeign
	case (v.Outlived.Position != acked.Position || isStale(v)) && (!gone || a.UID != ""):
		return nil, nil, ReasonForeign // the reconciler reads the object
	case isUnseen(v, a):
		return nil, nil, ReasonUnseen
	case gone:
		c, reason = deletion(v, tombstone, acked)
		return nil, repair(notBefore(c, k, v, acked, a), acked), reason
	case acked.Live() && (live == nil || acked.UID != string(live.UID)):
		return nil, nil, ReasonAwait
	case live == nil:
		c = deletionOf(k, v, a, acked)
		return nil, repair(notBefore(c, k, v, acked, a), acked), Reason(c.Type.Short())
	case v.Hold:
		return nil, nil, ReasonHold
	}
	c, reason = recreated(v, acked), ReasonCreated
	if acked.Live() && a.Live() {
		c, reason = change(v, event.Updated, acked.ResourceVersion), ReasonUpdated
	}
	if isTruncated(v, shown) {
		c.Present = &a
	}
	return nil, repair(c, acked), reason
}

// isStale reports whether the live state is older than a consistent read that found no object.
func isStale(v event.View) bool {
	return v.Live != nil && revision.IsUpTo(v.Live.ResourceVersion, v.Outlived.AbsentAt)
}

// isUnseen reports whether the informers might still report the object in an event on the bus, or its delete.
// A report can still follow if the handler is behind the indexer. It can also follow if the consistent read
// found no object and the event claims a version between the last reported one and the read.
func isUnseen(v event.View, a event.Acked) bool {
	switch {
	case a.Epoch != v.Epoch, v.Waited, v.Version == "" && v.Reported == "": // no informer shows the key
		return false
	case v.Reported != v.Version && !revision.IsUpTo(v.Version, v.Reported):
		return true
	}
	return revision.IsUpTo(a.ResourceVersion, v.Outlived.AbsentAt) && !revision.IsUpTo(a.ResourceVersion, v.Reported)
}

func repair(c *event.Change, acked event.Acked) *event.Change {
	c.After, c.Repairs = acked.Position, true
	return c
}

// isPresent reports whether an event has the UID and version of the live state.
func isPresent(v event.View, a event.Acked) bool {
	live := v.Live
	return live != nil && a.Live() && a.UID == string(live.UID) && a.ResourceVersion == live.ResourceVersion && a.Epoch == v.Epoch
}

// isBetween reports whether an event follows the last known event and precedes the live state, or
// the last state of a deleted object. Another forwarder can publish such an event. This forwarder
// publishes the later state after it.
//
// If the delete of the last known object is due, the live object is its successor. Then an event
// with the live version but other content also counts, because a delete published after it would be
// in the wrong order. The content can differ because a CustomResourceDefinition has gained a
// default, for example.
func isBetween(acked, a event.Acked, v event.View) bool {
	t, gone := v.Tombstone(a.UID)
	switch {
	case a.UID == "" || a.Epoch > v.Epoch:
		return false
	case acked.UID == a.UID && acked.ResourceVersion != "" && !isFollowing(a, acked) && !(gone && isSameVersion(a, acked)):
		return false
	case a.Epoch < v.Epoch: // etcd was restored after the event, and every state of the new epoch is later
		return acked.ResourceVersion != "" && acked.Epoch <= a.Epoch
	}
	if live := v.Live; live != nil && a.UID == string(live.UID) {
		_, isDeleteDue := v.Tombstone(acked.UID)
		isOtherContent := isDeleteDue && acked.Live() && acked.UID != a.UID && isPresent(v, a)
		return isOtherContent || revision.IsEarlier(a.ResourceVersion, live.ResourceVersion)
	}
	if !gone || !a.Live() || t.Object == nil {
		return false
	}
	last := t.Object.ResourceVersion
	return a.ResourceVersion == last || revision.IsEarlier(a.ResourceVersion, last)
}

// isFollowing reports whether an event can follow the last known event of its UID: it has a later
// epoch or version, or it is a deselected event at the same version.
func isFollowing(a, acked event.Acked) bool {
	if a.Epoch != acked.Epoch {
		return a.Epoch > acked.Epoch
	}
	return revision.IsEarlier(acked.ResourceVersion, a.ResourceVersion) || a.Deselected && acked.Live() && a.ResourceVersion == acked.ResourceVersion
}

// isSameVersion reports whether an event has the version of the last known event of its UID. The
// content can still differ, because it depends on the projection and on how the API server serves
// the object.
func isSameVersion(a, acked event.Acked) bool {
	return a.Live() && acked.Live() && a.Epoch == acked.Epoch && a.ResourceVersion == acked.ResourceVersion
}

// isOfAnother reports whether an event can come from another forwarder and belong to an intermediate
// object: an object that had the name after the last known object and is already gone. If the last
// known object is not deleted on the bus, or no object has the name now, the event must be a removal.
// Otherwise any event qualifies, because this forwarder publishes the live object after it.
// isOfAnother also returns true if the bus has no event and none is known.
//
// Our watch might not have shown the intermediate object: our watch can be behind the other forwarder's
// watch, and a list does not contain an object that was created and deleted before the list.
func isOfAnother(acked, a event.Acked, v event.View) bool {
	live := v.Live
	switch {
	case a.UID == "":
		return acked.UID == ""
	case acked.Live():
		return a.Deleted && isAfterDelete(acked, a, v)
	case live == nil:
		return a.Deleted
	}
	return acked.UID != string(live.UID) && a.UID != string(live.UID)
}

// isAfterDelete reports whether an event of another object is later than the delete of the last
// known object and earlier than the live state. The watch or a consistent read has shown that delete,
// but the bus lacks it.
func isAfterDelete(acked, a event.Acked, v event.View) bool {
	t, gone := v.Tombstone(acked.UID)
	if !gone || t.Deselected || a.UID == acked.UID || a.Epoch != v.Epoch {
		return false
	}
	last, live := acked.ResourceVersion, v.Live
	if t.Object != nil {
		last = t.Object.ResourceVersion
	}
	return revision.IsEarlier(last, a.ResourceVersion) && (live == nil || revision.IsEarlier(a.ResourceVersion, live.ResourceVersion))
}

// isLastState reports whether another forwarder can have published the removal shown: the removal has
// the last state that our watch showed, or another state for which [isEarlierRemoval] returns true.
// isLastState returns true if one of the states has no content to compare.
func isLastState(shown event.Stored, acked event.Acked, t event.Tombstone) bool {
	o := shown.Object
	if t.Object == nil || t.Object.Digest.None() || o == nil || o.Body.None() {
		return true
	}
	return isSameContent(o, t.Object) || isEarlierRemoval(shown, acked, t.Object.ResourceVersion)
}

// isEarlierRemoval reports whether a removal can have a state other than the last state that our
// watch showed. last is the version of that last state. A deselected event can have any selected
// state after acked. A delete can have the state of acked if its forwarder missed the later states.
// The state of acked is usually earlier than last, but can also be later than any state that our
// watch has shown. If acked has a text digest, which cannot be computed from the published form,
// only a deselected event can match, by its own digest.
func isEarlierRemoval(shown event.Stored, acked event.Acked, last string) bool {
	a := shown.Acked
	switch {
	case a.Epoch != acked.Epoch || a.ResourceVersion == last: // the last version has other content
		return false
	case a.ResourceVersion != acked.ResourceVersion:
		return a.Deselected && revision.IsEarlier(acked.ResourceVersion, a.ResourceVersion) && revision.IsEarlier(a.ResourceVersion, last)
	case !acked.Digest.Projected():
		return a.Deselected && a.Digest == acked.Digest
	}
	d, err := decode.DigestOf(shown.Object.Body)
	return err == nil && d == acked.Digest
}

// removed returns the entry for an event of a deleted object. The entry has the version of the last
// state that is known to be true, not the version that the event claims. A forged high version
// would keep the forwarder from publishing later objects of the same name.
func removed(a, acked event.Acked, last *event.Object) *event.Acked {
	is := event.Acked{UID: a.UID, Deleted: a.Deleted, Deselected: a.Deselected, Time: a.Time, Position: acked.Position}
	if a.UID == acked.UID {
		is.ResourceVersion, is.Epoch, is.Digest = acked.ResourceVersion, acked.Epoch, acked.Digest
		if last != nil && !revision.IsEarlier(last.ResourceVersion, acked.ResourceVersion) {
			is.ResourceVersion, is.Digest = last.ResourceVersion, last.Digest
		}
	}
	if a.Live() {
		is.Digest = event.Digest{} // the event can have other data, and a restore can bring this state back
	}
	return &is
}

// deletionOf returns the removal of the object that a foreign event shows. The caller has verified
// that the key has no selected object. The last state is unknown.
func deletionOf(k event.Key, v event.View, a, acked event.Acked) *event.Change {
	is := acked
	if a.UID != "" && a.UID != acked.UID {
		is = event.Acked{UID: a.UID, Epoch: v.Epoch}
	}
	c := &event.Change{
		Type: event.Deleted, Cause: event.CauseReconcile, Object: is.Identity(k),
		Epoch: is.Epoch, Previous: is.ResourceVersion, Observed: v.Observed,
	}
	if is.Deselected || v.Outlived.Unselected {
		c.Type = event.Deselected
	}
	return c
}

// notBefore returns the removal c in a form that does not sort before the event a on the bus.
// Otherwise, subscribers that sort events would drop c. If necessary, notBefore gives c the version
// of a and an unknown final state.
func notBefore(c *event.Change, k event.Key, v event.View, acked, a event.Acked) *event.Change {
	is := acked
	if c.Object != nil {
		is.UID, is.ResourceVersion = string(c.Object.UID), c.Object.ResourceVersion
	}
	sortsBefore := is.ResourceVersion == "" || revision.IsEarlier(is.ResourceVersion, a.ResourceVersion)
	if is.UID == a.UID && c.Epoch == a.Epoch && sortsBefore && isPast(a, v) {
		c.Object = a.Identity(k)
	}
	return c
}

// isPast reports whether the version that an event claims is earlier than the live state and all
// future states. A later version cannot be used, because it can be forged and would hide those states.
func isPast(a event.Acked, v event.View) bool {
	if a.Epoch != v.Epoch || a.ResourceVersion == "" || v.Version == "" || revision.IsEarlier(v.Version, a.ResourceVersion) {
		return false
	}
	return v.Live == nil || revision.IsEarlier(a.ResourceVersion, v.Live.ResourceVersion)
}
