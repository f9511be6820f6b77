package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// A foreign entry means that the last event of an object on the bus is not one that this
// forwarder is known to have written. What tells who wrote it:
//
//	an earlier publish of ours, without an answer   it has the entry of an attempt
//	another forwarder of this cluster               it has the state of the cluster, or one
//	                                                between the last known and the present
//	a new term, or a new process                    the checkpoint is loaded anew, and
//	                                                nothing in it is foreign
//	a bus that lost its end                         the position is lower than the known one
//	a purge                                         there is no event
//	a foreign writer                                anything else: the event contradicts the
//	                                                cluster, as a consistent read confirms
//
// Another forwarder's watch can be ahead of ours. After the consistent read, the informers
// show no less than the other forwarder knew when it published the event.
//
// The answer to a foreign writer is a repair: the state of the object, published again with
// an ID of its own. The forwarder answers each foreign event once.

// ReasonForeign: the bus has an event of another writer. A consistent read decides whether
// to publish the state of the object again.
const ReasonForeign Reason = "foreign"

// DecideForeign is [Decide] for a foreign entry. Shown is the event on the bus, the zero
// value if the bus no longer has it. Ours reports whether shown is an attempt of this
// forwarder.
//
// It returns the entry to adopt if shown is the state of the object or an expected one, or
// the change that repairs it, or neither if it is not known yet.
func DecideForeign(k event.Key, v event.View, acked event.Acked, shown event.Stored, ours bool) (adopt *event.Acked, c *event.Change, reason Reason) {
	a, live := shown.Acked, v.Live
	tombstone, gone := v.Tombstone(acked.UID)
	gone = gone && acked.Live()
	switch {
	case ours:
		return &a, nil, ReasonForeign
	case live != nil && isState(v, shown):
		a.Digest = live.Digest
		return &a, nil, ReasonForeign
	case isBetween(acked, a, v):
		a.Digest = event.Digest{} // not trusted
		return &a, nil, ReasonForeign
	case gone && a.Deleted && a.UID == acked.UID && isLastState(shown, acked, tombstone):
		return removed(a, acked, tombstone.Object), nil, ReasonForeign
	case isOfAnother(acked, a, v):
		is := removed(a, acked, nil)
		if a.UID != acked.UID && isPast(a, v) {
			is.ResourceVersion, is.Epoch = a.ResourceVersion, a.Epoch
		}
		return is, nil, ReasonForeign
	case v.Outlived != acked.Position && (!gone || a.UID != ""):
		return nil, nil, ReasonForeign // the reconciler reads the object
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

func repair(c *event.Change, acked event.Acked) *event.Change {
	c.After, c.Repairs = acked.Position, true
	return c
}

// isState reports whether an event on the bus has the live state. An object without a
// digest has no content that could be compared: the hashes of a Secret change with their
// key.
func isState(v event.View, shown event.Stored) bool {
	live, a := v.Live, shown.Acked
	switch {
	case !a.Live() || a.UID != string(live.UID) || a.ResourceVersion != live.ResourceVersion || a.Epoch != v.Epoch:
		return false
	case live.Digest.None():
		return true
	}
	return isOfGroup(shown.Object, v.Resource) && isSameContent(shown.Object, live)
}

// isOfGroup reports whether an object that was read from the bus is of the group of a resource.
// The version can be another one than the watched one, but not another API.
func isOfGroup(o *event.Object, r event.Resource) bool {
	if o == nil || o.APIVersion == "" {
		return true
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	return err == nil && gv.Group == r.Group
}

// isTruncated reports whether an event on the bus can be the live state without its content.
// Only a publish shows whether the bus takes the whole.
func isTruncated(v event.View, shown event.Stored) bool {
	live, a := v.Live, shown.Acked
	if !a.Live() || a.UID != string(live.UID) || a.ResourceVersion != live.ResourceVersion || a.Epoch != v.Epoch || a.Digest != live.Digest || shown.Truncated.None() || !isOfGroup(shown.Object, v.Resource) {
		return false
	}
	same, err := event.IsTruncated(shown.Truncated, live, v.Resource)
	return err == nil && same
}

// isSameContent compares data that was read from the bus with the state of the cluster.
func isSameContent(bus, o *event.Object) bool {
	switch {
	case bus == nil || bus.Body.None() || o.Body.None():
		return false
	case o.Digest.Projected():
		d, err := event.DigestOf(bus.Body)
		return err == nil && d == o.Digest
	}
	same, err := event.SameContent(bus.Body, o.Body)
	return err == nil && same
}

// isBetween reports whether an event follows the last known one and precedes the live state,
// or the last state of an object that is gone, as an event of another forwarder may. The state
// that it precedes is published after it.
func isBetween(acked, a event.Acked, v event.View) bool {
	switch {
	case a.UID == "" || a.Epoch > v.Epoch:
		return false
	case acked.UID == a.UID && acked.ResourceVersion != "" && !isFollowing(a, acked):
		return false
	case a.Epoch < v.Epoch: // history went back after it, and everything in the new epoch is later
		return acked.ResourceVersion != "" && acked.Epoch <= a.Epoch
	}
	if live := v.Live; live != nil && a.UID == string(live.UID) {
		return revision.IsEarlier(a.ResourceVersion, live.ResourceVersion)
	}
	t, gone := v.Tombstone(a.UID)
	if !gone || !a.Live() || t.Object == nil {
		return false
	}
	last := t.Object.ResourceVersion
	return a.ResourceVersion == last || revision.IsEarlier(a.ResourceVersion, last)
}

// isFollowing reports whether an event can follow the last known one of its UID: with a later
// version, or as deselected with the same one.
func isFollowing(a, acked event.Acked) bool {
	if a.Epoch != acked.Epoch {
		return a.Epoch > acked.Epoch
	}
	return revision.IsEarlier(acked.ResourceVersion, a.ResourceVersion) || a.Deselected && acked.Live() && a.ResourceVersion == acked.ResourceVersion
}

// isOfAnother reports whether an event can be another forwarder's, of an object that had the
// name after the last known one and is gone. If an object has the name now, it is not
// published yet. If none has it, only a removal is such an event. The same holds for no event,
// if none is known.
//
// The watch need not have shown that object: it can be behind the other forwarder's, and a
// list shows no object that came and went before it.
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
// known one, which the cluster shows and the bus does not, and earlier than the live state.
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

// isLastState reports whether a removal on the bus has a state that another forwarder can have
// published last, as far as it is known: the one that the watch showed last, or an earlier one.
func isLastState(shown event.Stored, acked event.Acked, t event.Tombstone) bool {
	o := shown.Object
	if t.Object == nil || t.Object.Digest.None() || o == nil || o.Body.None() {
		return true
	}
	return isSameContent(o, t.Object) || isEarlierRemoval(shown, acked, t.Object.ResourceVersion)
}

// isEarlierRemoval reports whether a removal comes before the last state: a deselected has the
// last state that was selected, and a delete has the one on the bus if its forwarder missed
// what followed. The one on the bus can also be later than what our watch has shown. The digest
// of a text cannot be computed from what is published.
func isEarlierRemoval(shown event.Stored, acked event.Acked, last string) bool {
	a := shown.Acked
	switch {
	case a.Epoch != acked.Epoch || a.ResourceVersion == last: // whose content is another one
		return false
	case a.ResourceVersion != acked.ResourceVersion:
		return a.Deselected && revision.IsEarlier(acked.ResourceVersion, a.ResourceVersion) && revision.IsEarlier(a.ResourceVersion, last)
	case !acked.Digest.Projected():
		return a.Deselected && a.Digest == acked.Digest
	}
	d, err := event.DigestOf(shown.Object.Body)
	return err == nil && d == acked.Digest
}

// removed returns the entry of an event of an object that is gone. Its version is that of the
// last state that is known to be true, not the one that the event claims: a later object of
// the same name would not be published before its version is higher.
func removed(a, acked event.Acked, last *event.Object) *event.Acked {
	is := event.Acked{UID: a.UID, Deleted: a.Deleted, Deselected: a.Deselected, Time: a.Time, Position: acked.Position}
	if a.UID == acked.UID {
		is.ResourceVersion, is.Epoch, is.Digest = acked.ResourceVersion, acked.Epoch, acked.Digest
		if last != nil && !revision.IsEarlier(last.ResourceVersion, acked.ResourceVersion) {
			is.ResourceVersion, is.Digest = last.ResourceVersion, last.Digest
		}
	}
	return &is
}

// deletionOf removes what a foreign event shows although there is no object that is selected.
// Its last state is unknown.
func deletionOf(k event.Key, v event.View, a, acked event.Acked) *event.Change {
	is := acked
	if a.UID != "" && a.UID != acked.UID {
		is = event.Acked{UID: a.UID, Epoch: v.Epoch}
	}
	c := &event.Change{
		Type: event.Deleted, Cause: event.CauseReconcile, Object: is.Identity(k),
		Epoch: is.Epoch, Previous: is.ResourceVersion, Observed: v.Observed,
	}
	if is.Deselected {
		c.Type = event.Deselected
	}
	return c
}

// notBefore returns the removal c, or one of an unknown final state in the version of the
// event a on the bus if c would sort before a: subscribers that sort events would drop c.
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

// isPast reports whether the live state, or any to come, is later than the version that an
// event claims. Only then can the claim be taken: a forged one would hide these states.
func isPast(a event.Acked, v event.View) bool {
	if a.Epoch != v.Epoch || a.ResourceVersion == "" || v.Version == "" || revision.IsEarlier(v.Version, a.ResourceVersion) {
		return false
	}
	return v.Live == nil || revision.IsEarlier(a.ResourceVersion, v.Live.ResourceVersion)
}
