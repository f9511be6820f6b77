package ledger

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attempts has the publishes of a key that got no answer since the last answer. After an answer
// that names another event, the bus is past the position that they expect, and refuses them. The
// value is immutable.
type attempts struct {
	expected uint64 // the position that the last attempt expects
	// uid is the UID of the last attempt that is not a removal. The bus may show it as existing,
	// now or soon, although it never acknowledged the event. So its delete must be published. The
	// bus can also show an earlier one, because any attempt can be stored while none is known to be.
	uid string
	all []event.Acked // removals included, to recognize them on the bus
}

// maxAttempts limits the attempts to remember for one key. If the bus stored a forgotten one, its
// event counts as foreign until it is compared with the cluster.
const maxAttempts = 64

// with returns the attempts and one more, which expects a position.
func (a *attempts) with(sent event.Acked, expected uint64) *attempts {
	var is attempts
	if a != nil {
		is = *a
	}
	is.expected = expected
	if !sent.Deleted {
		is.uid = sent.UID
	}
	if sent.Time = 0; !slices.Contains(is.all, sent) { // has does not compare times
		is.all = append(slices.Clone(is.all[max(0, len(is.all)-maxAttempts+1):]), sent)
	}
	return &is
}

// has reports whether an event on the bus can be an attempt.
func (a *attempts) has(bus event.Acked) bool {
	bus.Position, bus.Time = 0, 0
	return a != nil && slices.Contains(a.all, bus)
}

// hasRemoval reports whether an event on the bus can be an attempt to publish a removal. It needs no
// reading: the event says all that the entry of a removal has, and a tombstone can have replaced it.
func (a *attempts) hasRemoval(bus event.Acked) bool { return bus.Deleted && a.has(bus) }

// mayShow reports whether the bus may show an attempt as existing.
func (a *attempts) mayShow() bool { return a != nil && a.uid != "" }

// show reports whether an attempt shows a UID as existing.
func (a *attempts) show(uid string) bool {
	return a != nil && (a.uid == uid || slices.ContainsFunc(a.all, func(e event.Acked) bool { return e.UID == uid && !e.Deleted }))
}

// uidFor returns the UID that the attempts may have left on the bus, "" for none. This can be the
// known UID on the bus if an attempt removed it: the object may be selected again.
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
