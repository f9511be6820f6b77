package reload

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Bounds contains the first offset of each partition of the open topics. It is nil if the entries
// are those that a takeover has just found.
type Bounds map[string][]int64

// Outcome is the action of a load for an entry.
type Outcome int

// The values of Outcome.
const (
	Skip  Outcome = iota // the entry says nothing about an object
	Yield                // yield the event; the zero value if the object has none
	Lost                 // yield the zero value, because the bus has lost the event
)

// Take returns what an entry says about the last event of an object. A zero entry means that the entry was
// removed. last is the position of the object's last event as the session knows it, or 0 if there is none. If
// the entry is for an earlier event than the last one, Take returns that event: the last event was
// acknowledged after the load began, and the caller might not know of it yet. A caller that had the state of
// the earlier event and the position of the last one would publish the last event again. Otherwise, Take
// returns last as the position if it is not 0, whoever wrote the entry.
//
// Take treats an entry of a topic that is not open like a removed entry. The topic might have
// opened after the load began. In that case, last is the position of an event that the bus has.
func (b Bounds) Take(e record.Entry, last uint64) (event.Acked, Outcome) {
	_, open := b[e.Topic]
	isRemoved := e == record.Entry{} || b != nil && !open
	switch {
	case e.Type != "": // a marker
		return event.Acked{}, Skip
	case isRemoved && last != 0: // the last event has another entry, or was published after the load began
		return event.Acked{}, Skip
	case isRemoved:
		return event.Acked{}, Yield
	case !b.hold(e):
		return event.Acked{}, Lost
	}
	acked := e.Acked()
	if isEarlier := acked.Position < last && publish.Partition(last) == e.Partition; last != 0 && !isEarlier {
		acked.Position = last
	}
	return acked, Yield
}

// hold reports whether an open topic can still hold the event of an entry. If not, the records were
// deleted, or the partition never existed.
func (b Bounds) hold(e record.Entry) bool {
	start := b[e.Topic]
	return b == nil || e.Partition < len(start) && e.Offset >= start[e.Partition]
}
