package simulate

import "github.com/kuberelay/kuberelay/internal/event"

// The known weaknesses of the forwarder, which the oracle tolerates. Whoever fixes one removes its
// function.

// isOfWriterBehind reports whether an event is a known false positive of two forwarders without
// leader election. The one whose watch is behind has not seen the object in the other's last
// event, or not its delete. It takes the event over without its version, and then publishes every
// state from its watch, including states before that event. Or it takes the event for foreign, and
// answers it with an event of the object that it knows. See ledger.DecideForeign. Or the bus lost
// its end, and the other forwarder used the position of the known event again.
func (o *oracle) isOfWriterBehind(e published, follows event.Acked, last published) bool {
	if o.world.writers == 1 {
		return false
	}
	isSame := follows.ResourceVersion == last.ResourceVersion && (!o.lossy || follows.Digest == last.Digest)
	return e.isRepair() || follows.Foreign || follows.UID == last.UID && follows.Position == last.Position && !isSame
}

// mayDisagreeAboutEpochs reports whether the known weakness of two forwarders without leader
// election is possible: after a restore of etcd, one of them has found the new epoch, and the
// other takes each event in it for foreign. They answer each other at each refresh.
func (o *oracle) mayDisagreeAboutEpochs() bool { return o.world.writers > 1 && o.restored }

// leavesForeign reports whether the known weakness of reconciliation is possible: an object left
// the label selector, and a read finds that it exists, so it stays on the bus. A foreign event of
// it, such as a delete by another forwarder with another last state, is then neither taken over
// nor answered. See reconcile.answerOf.conclude.
func (c config) leavesForeign() bool { return c.selection == byLabel && !c.publishDeselected }

// leavesUnseen reports whether the known weakness of points with a label selector is possible: after
// a start, a list from a stale cache lacks an object that is on the bus. A read finds that it
// exists, so it counts as out of scope. If the watch then ends before it shows the object, and the
// object is deleted, only the next refresh finds that. See reconcile.readResult.conclude.
func (c config) leavesUnseen() bool { return c.leavesForeign() }

// mayRepeatID reports whether the known weakness after a forged event of another UID is possible:
// the forwarder deletes that UID. Then it publishes the object again, with the ID of its first
// event. If that event got no answer, the bus can have it already. See ledger.Term.Acknowledge.
func mayRepeatID(last published) bool {
	return last.Deleted && last.uid() >= forgedUIDs
}

// mayRepeatEarlierState reports whether the known weakness of selections by label or content is
// possible: an object left the selection and returned, more than once, and its last create got no
// answer. If the notification of an earlier deselection then comes late, the object is published once
// more in that state, and its removal follows. See ledger.Decide.
func (o *oracle) mayRepeatEarlierState(object int, e, last published) bool {
	return o.unsure[object] && e.Live() && last.Deselected && e.UID == last.UID
}
