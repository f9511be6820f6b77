package ledger

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attempts are the publishes of a key without an answer, until the next answer. After any
// answer, the bus is past the position that they expected, and refuses them. They are not
// changed, but replaced.
type attempts struct {
	// uid is that of the last one that was no removal. The bus may show it as existing, now or
	// in a moment, although it never acknowledged the event. So its delete must be published.
	uid string
	all []event.Acked // removals included, to recognize them on the bus
}

// maxAttempts bounds the remembered publishes of one key. A forgotten one that was stored
// counts as foreign until the event is compared with the cluster.
const maxAttempts = 64

// with returns the attempts with another one.
func (a *attempts) with(sent event.Acked) *attempts {
	var is attempts
	if a != nil {
		is = *a
	}
	if !sent.Deleted {
		is.uid = sent.UID
	}
	if sent.Time = 0; !slices.Contains(is.all, sent) { // has does not compare it
		is.all = append(slices.Clone(is.all[max(0, len(is.all)-maxAttempts+1):]), sent)
	}
	return &is
}

// has reports whether an event on the bus can be an attempt.
func (a *attempts) has(bus event.Acked) bool {
	bus.Position, bus.Time = 0, 0
	return a != nil && slices.Contains(a.all, bus)
}

// uidFor returns the UID of the attempts, or "". It includes the removal of the object that
// the bus is known to show: the object may be selected again.
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
