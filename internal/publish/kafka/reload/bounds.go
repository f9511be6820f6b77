package reload

import (
	"github.com/kuberelay/kuberelay/internal/event"
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

// Take returns what an entry says about the last event of an object. A zero entry means that the
// entry was removed. last is the position of the object's last event as the session knows it, 0 for
// none. If last is not 0, Take returns it as the position, whoever wrote the entry.
func (b Bounds) Take(e record.Entry, last uint64) (event.Acked, Outcome) {
	switch {
	case e.Type != "": // a marker
		return event.Acked{}, Skip
	case e == record.Entry{} && last != 0: // another partition of the checkpoint topic has the entry of the key
		return event.Acked{}, Skip
	case e == record.Entry{}:
		return event.Acked{}, Yield
	case !b.hold(e):
		return event.Acked{}, Lost
	}
	acked := e.Acked()
	if last != 0 {
		acked.Position = last
	}
	return acked, Yield
}

// hold reports whether the topics can still hold the event of an entry. Otherwise the topic or its
// records were deleted, or never existed.
func (b Bounds) hold(e record.Entry) bool {
	start, open := b[e.Topic]
	return b == nil || open && e.Partition < len(start) && e.Offset >= start[e.Partition]
}
