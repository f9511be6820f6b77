package simulate

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// The functions in this file describe the known weaknesses of the forwarder that the oracle
// tolerates. If you fix a weakness, remove its function.

// isOfWriterBehind reports whether the known weakness of two forwarders without leader election
// explains an event of one of them. The watch of this forwarder hasn't shown the object in the other
// forwarder's last event, or the delete of that object. See ledger.DecideForeign. The forwarder does
// one of these:
//
//   - It adopts the event without its version, and then publishes every state from its watch,
//     including states before that event.
//   - It treats the event as foreign, and repairs it with an event of the object that it knows,
//     because a list or a restore of etcd hid the state in the event from its watch, or because its
//     ledger has dropped the tombstone of that object. It doesn't do so before its watch has
//     reached the version of the event, unless the labels of the namespace may deselect the object, or
//     its informer is new and has not listed yet. It also doesn't publish an event of another object while
//     its informer shows the state in the event, or a later one.
//
// The event is also allowed if the bus lost the event before it, and the other forwarder used the
// position of the lost event again.
func (o *oracle) isOfWriterBehind(e, last published, f *flight) bool {
	follows, reported := f.follows, f.reported
	waits := reported != "" && !f.of.config.scope.usesLabels()
	switch {
	case o.world.writers == 1:
		return false
	case e.isRepair() && last.version > 0 && !o.lossy && !o.restored && waits && !revision.IsUpTo(versionText(last.version), reported):
		return false // the forwarder doesn't wait for its watch
	case e.isRepair() && e.UID != last.UID && last.Live() && !o.lossy && !o.restored && reported != "" && f.isShown(last):
		return false // the delete of the object in the last event would never follow
	}
	isSame := follows.ResourceVersion == last.ResourceVersion && (!o.lossy || follows.Digest == last.Digest)
	return e.isRepair() || follows.Foreign || follows.UID == last.UID && follows.Position == last.Position && !isSame
}

// isShown reports whether the sender's informer showed the selected state in an event, or a later state of the
// same object, when the flight was sent.
func (f *flight) isShown(e published) bool {
	o := f.shown
	return o != nil && !o.Unselected && string(o.UID) == e.UID && !revision.IsEarlier(o.ResourceVersion, e.ResourceVersion)
}

// mayDisagreeAboutEpochs reports whether the known weakness of two forwarders without leader
// election is possible: after a restore of etcd, one of them has found the new epoch, and the
// other treats each event in that epoch as foreign. At each refresh, they repair each other's events.
func (o *oracle) mayDisagreeAboutEpochs() bool { return o.world.writers > 1 && o.restored }

// mayKeepAttempt reports whether the known weakness of two forwarders without leader election is
// possible: the bus lost events, and the other forwarder used the position of a lost event again. An
// attempt that expects that position then stays open, although the bus has refused it, and the key
// stays dirty.
func (o *oracle) mayKeepAttempt() bool { return o.world.writers > 1 && o.lossy }

// mayRepeatPurgedDelete reports whether the known weakness of two forwarders without leader election is possible:
// after the retention period, one of them purges a delete that the other one has not read. The other one
// then publishes the delete again. See ledger.Term.Conflict.
func (o *oracle) mayRepeatPurgedDelete(isOnBus bool) bool { return o.world.writers > 1 && !isOnBus }

// mayRepairUnseenDelete reports whether the known weakness of two forwarders without leader election is
// possible. Access to the namespace is denied, so the watch of one forwarder has ended. Then the other one
// publishes a delete with a later last state. At its next refresh, the first one publishes the delete again.
func (w *world) mayRepairUnseenDelete() bool {
	return w.writers > 1 && slices.ContainsFunc(w.processes[:], func(p *process) bool { return p != nil && !p.spaces.isCovered })
}

// leavesForeign reports whether the known weakness of reconciliation is possible. An object left
// the label selector, and a read finds that the object exists, so its last event stays on the bus.
// If a foreign event of the object follows, such as a delete by another forwarder with another last
// state, the forwarder neither adopts nor repairs that event. See reconcile.readResult.conclude.
func (c config) leavesForeign() bool { return c.selection == byLabel && !c.publishDeselected }

// leavesUnseen reports whether the known weakness of consistency points with a label selector is
// possible. After a start, a list from a stale cache lacks an object that is on the bus. A read
// finds that the object exists, so the object counts as out of scope. If the watch ends before it
// shows the object and the object is then deleted, only the next refresh finds the delete. See
// reconcile.readResult.conclude.
func (c config) leavesUnseen() bool { return c.leavesForeign() }

// mayRepeatID reports whether the known weakness after a forged event with another UID is possible.
// The forwarder deletes that UID, and then publishes the object again with the ID of its first
// event. If that first event wasn't acknowledged, the bus may already have it. See
// ledger.Term.Acknowledge.
func mayRepeatID(last published) bool {
	return last.Deleted && last.uid() >= forgedUIDs
}

// missesEpoch reports whether the known weakness after a restore of etcd is possible. A forwarder
// detects the restore and is killed, and its only event in the new epoch is stored after the next
// forwarder has loaded the checkpoint. That forwarder repairs the event in the epoch before, because
// a forged event can claim any epoch. See ledger.DecideForeign.
func (o *oracle) missesEpoch(e, last published) bool {
	return o.restored && e.isRepair() && last.Epoch == event.NextEpoch(e.Epoch)
}

// repairsLateEvent reports whether the known weakness after a restore of etcd is possible. A late event
// of another term shows an object that the watch never shows, because etcd was restored. Until the
// forwarder detects the restore, it repairs the event like a forgery, without a delete of that object.
// See section "How other events are repaired" in docs/delivery.md.
func (o *oracle) repairsLateEvent(e, last published, f *flight) bool {
	return o.restored && e.isRepair() && e.Epoch == last.Epoch && o.writer[f.object] != f.term
}

// followsLateEvent reports whether the known weakness after a restore of etcd is possible. The last event
// arrived late, with a version that the new history may not have reached. The forwarder then adopts
// the event without that version. See ledger.DecideForeign.
func (o *oracle) followsLateEvent(last published) bool { return o.restored && last.late }

// deselectsUnseenEvent reports whether the known weakness of a deselected namespace is possible. A late event shows
// an object in a namespace that is no longer selected, in a version that no informer has reached. That version can
// be forged, so the deselected event has the last version that is known to be true. If the object is selected
// again, the version of the late event is published once more, with the same ID. See ledger.notBefore.
func deselectsUnseenEvent(e, last published, f *flight) bool {
	isUnseen := !revision.IsUpTo(versionText(last.version), f.reported)
	return e.isRepair() && e.Deselected && last.late && f.of.config.scope.usesLabels() && isUnseen
}

// returnsByRestore reports whether a restore of etcd explains that e has the ID of the event before: the
// object was deleted in between, and is back in an earlier version. Until the forwarder detects the
// restore, it publishes the object in the old epoch.
func (o *oracle) returnsByRestore(object int, before, e, last published) bool {
	return o.restored && e.Live() && last.Deleted && slices.ContainsFunc(o.events[object], func(p published) bool {
		return p.Deleted && p.UID == e.UID && p.Position > before.Position
	})
}

// followsReusedPosition reports whether the bus lost the event that a forwarder expected to be the
// last one, and then stored another event at the same position. The check of the expected position
// accepts the late event. The next load finds it. See section "When the bus loses data" in docs/delivery.md.
func (o *oracle) followsReusedPosition(follows event.Acked, last published) bool {
	return o.lossy && follows.Position == last.Position && (follows.UID != last.UID || follows.ResourceVersion != last.ResourceVersion)
}
