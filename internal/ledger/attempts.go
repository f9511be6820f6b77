package ledger

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attempts records the unacknowledged publishes of a key, which the bus might have stored. Once the bus has
// another event of the key, the bus refuses these publishes, because they expect an earlier position. So the
// ledger then forgets them. The value is immutable.
type attempts struct {
	expected uint64 // the position that the last attempt expects
	// uid is the UID in the last attempt that is not a removal. The bus might show this object as
	// existing, although it never acknowledged the event. If the object is gone, its delete is due.
	uid string
	// change is the change in that attempt. If the bus shows no object, the forwarder retries the change
	// until the bus responds, even if the informers forget the object.
	change *event.Change
	all    []event.Acked // the last maxAttempts attempts, including removals, to recognize them on the bus
}

// maxAttempts limits the attempts to remember for one key. The ledger forgets older attempts. If the
// bus stored one of them, the event counts as foreign until a comparison with the cluster.
const maxAttempts = 64

// with adds the attempt to publish the event sent, which contains the change c. The bus stores sent
// only if acked is the key's last event on the bus.
func (a *attempts) with(sent, acked event.Acked, c *event.Change) *attempts {
	var is attempts
	if a != nil {
		is = *a
	}
	is.expected = acked.Position
	if !sent.Deleted {
		is.uid, is.change = sent.UID, c
	}
	if sent.Time = 0; !slices.Contains(is.all, sent) { // has ignores times
		is.all = append(slices.Clone(is.all[max(0, len(is.all)-maxAttempts+1):]), sent)
	}
	return &is
}

// has reports whether an event on the bus can be an attempt.
func (a *attempts) has(bus event.Acked) bool {
	bus.Position, bus.Time = 0, 0
	return a != nil && slices.Contains(a.all, bus)
}

// hasRemoval reports whether an event on the bus can be an attempt to publish a removal. It doesn't
// use the event's data, which a tombstone on the bus may have replaced.
func (a *attempts) hasRemoval(bus event.Acked) bool { return bus.Deleted && a.has(bus) }

// mayShow reports whether the bus might show the object of an attempt as existing.
func (a *attempts) mayShow() bool { return a != nil && a.uid != "" }

// hasChange reports whether an attempt might have created an object on a bus that showed none.
func (a *attempts) hasChange() bool { return a != nil && a.change != nil }

// show reports whether any attempt shows a UID as existing.
func (a *attempts) show(uid string) bool {
	return a != nil && (a.uid == uid || slices.ContainsFunc(a.all, func(e event.Acked) bool { return e.UID == uid && !e.Deleted }))
}

// uidFor returns the attempted UID for [Decide]: the UID that the bus might show because of an attempt,
// or "" if there is none. If all attempts are removals, one of them might have removed the UID of acked.
// Then uidFor returns that UID, so that Decide publishes the object again if it is selected again.
func (a *attempts) uidFor(acked event.Acked) string {
	isRemoval := func(e event.Acked) bool { return e.UID == acked.UID && e.Deleted }
	switch {
	case a == nil:
		return ""
	case a.uid == "" && acked.Live() && slices.ContainsFunc(a.all, isRemoval):
		return acked.UID
	}
	return a.uid
}
