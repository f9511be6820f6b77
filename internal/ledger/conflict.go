package ledger

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// Conflict records that the bus refused a change. The change expected acked as the last event of
// the object, but the last event is bus. lost matters only if the bus has no event of the object:
// true means that the bus has lost the events, and false means that another writer might have
// published the delete and purged it after the retention period.
//
// Conflict has no effect if a load has changed the entry since the decision.
func (t *Term) Conflict(c event.Change, acked, bus event.Acked, lost bool) {
	t.step(c.Key, func(of *table, r *record) {
		if r.acked() == acked {
			t.put(c.Key, of, r, afterConflict(c, acked, bus, lost, r.others().attempts))
		}
	})
}

func afterConflict(c event.Change, acked, bus event.Acked, lost bool, attempts *attempts) event.Acked {
	claimed := acked.Foreign && acked.ResourceVersion == "" // the UID is known only from another writer's event
	switch {
	case c.Type.IsRemoval() && bus == (event.Acked{}) && lost && !claimed:
		// Subscribers have seen the object, so they must see the delete.
		acked.Position, acked.Foreign = 0, false
		return acked
	case bus.Position <= acked.Position: // the bus lost its latest events
		return bus
	case attempts.hasRemoval(bus):
		return bus
	case isBefore(bus, c):
		bus.Digest = event.Digest{} // not trusted, because the object can be selected again at this version
		return bus
	}
	return acked.Before(bus)
}

// isBefore reports whether another forwarder might have published the event bus for a state that
// precedes c. Every state precedes a removal. If a foreign writer published the event instead, c
// corrects it.
func isBefore(bus event.Acked, c event.Change) bool {
	if c.Repairs || !bus.Live() || bus.UID != string(c.Object.UID) || bus.Epoch != c.Epoch {
		return false
	}
	return c.Type.IsRemoval() || revision.IsEarlier(bus.ResourceVersion, c.Object.ResourceVersion)
}
