package ledger

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// AfterConflict returns what to believe of the event that the bus has of a key, and because of
// which it refused a change: the bus did not have acked. Ours reports whether the event is an
// attempt of this forwarder. Lost reports whether the bus has lost the events of an object if
// it has none. If false, another writer may have published the delete and purged it after the
// retention.
func AfterConflict(c event.Change, acked, bus event.Acked, ours, lost bool) event.Acked {
	claimed := acked.Foreign && acked.ResourceVersion == "" // only another writer named the UID
	switch {
	case c.Type.IsRemoval() && bus == (event.Acked{}) && lost && !claimed:
		// Subscribers have seen the object, so they must see the delete.
		acked.Position, acked.Foreign = 0, false
		return acked
	case acked.UID == "", bus.Position <= acked.Position, ours:
		// Of an object that was not known, the event is another forwarder's. At an earlier
		// position, it is what a bus that lost its end has kept.
		return bus
	case isBefore(bus, c):
		bus.Digest = event.Digest{} // not trusted: the object can be selected again in this version
		return bus
	}
	return acked.Before(bus)
}

// isBefore reports whether an event may be another forwarder's, of a state before a change.
// It doesn't matter if it is not: the change follows it.
func isBefore(bus event.Acked, c event.Change) bool {
	if c.Repairs || !bus.Live() || bus.UID != string(c.Object.UID) || bus.Epoch != c.Epoch {
		return false
	}
	return c.Type.IsRemoval() || revision.IsEarlier(bus.ResourceVersion, c.Object.ResourceVersion)
}
