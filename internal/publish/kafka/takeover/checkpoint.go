package takeover

import (
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Checkpoint is the content of the checkpoint topic.
type Checkpoint struct {
	// Records is the number of checkpoint partitions that entries are spread over. Finish sets it.
	Records int

	parts  []part
	states map[string]record.State
	topics map[string]recorded // the recorded topics that Take has not removed yet
	erased map[string]map[string]erasedEntry
}

// recorded is the content of the checkpoint topic for one event topic. The entries are keyed by
// partition key.
type recorded struct {
	state   record.State
	entries map[string]record.Entry
}

// part is the content of one partition of the checkpoint topic, keyed by partition key.
type part struct {
	entries map[string]record.Entry
	erased  map[string]erasedEntry
}

// NewCheckpoint returns the content of an empty checkpoint topic.
func NewCheckpoint(partitions int) *Checkpoint {
	c := &Checkpoint{parts: make([]part, partitions), states: map[string]record.State{}}
	for p := range c.parts {
		c.parts[p] = part{map[string]record.Entry{}, map[string]erasedEntry{}}
	}
	return c
}

// Read applies the next record of a partition. Calls for different partitions may be concurrent,
// because only the first partition has states.
func (c *Checkpoint) Read(partition int, offset int64, key string, r record.Checkpoint) {
	switch r.Kind {
	case record.OfTopic:
		c.states[r.State.Topic] = r.State
	case record.OfEvent, record.Removed:
		c.parts[partition].read(offset, key, r.Entry)
	case record.Ignored:
		// An invalid record might have replaced an entry. In that case, the takeover finds the event
		// in the event topic, or the forwarder publishes it again.
	}
}

// Finish completes the checkpoint after all records were passed to Read.
func (c *Checkpoint) Finish() {
	c.Records = c.recordSpread()
	c.topics, c.erased = map[string]recorded{}, map[string]map[string]erasedEntry{}
	for name, state := range c.states {
		c.topics[name] = recorded{state, map[string]record.Entry{}}
	}
	for key, e := range c.merge() {
		if _, found := c.topics[e.Topic]; !found {
			c.topics[e.Topic] = recorded{entries: map[string]record.Entry{}}
		}
		c.topics[e.Topic].entries[key] = e
	}
	for home, part := range c.parts {
		for key, e := range part.erased {
			if c.erased[e.Topic] == nil {
				c.erased[e.Topic] = map[string]erasedEntry{}
			}
			if Home(e.Partition, c.Records) == home {
				c.erased[e.Topic][key] = e
			}
		}
	}
	c.parts = nil
}

// merge returns the entries of all partitions. If several partitions have an entry for the same key,
// merge prefers the entry in the partition that a forwarder uses for that key.
func (c *Checkpoint) merge() map[string]record.Entry {
	all := map[string]record.Entry{}
	for home, part := range c.parts {
		for key, e := range part.entries {
			spread := c.states[e.Topic].Partitions
			isOurs := Home(e.Partition, c.Records) == home &&
				(e.Type == event.WriterStarted || spread > 0 && binding.Partition([]byte(key), spread) == e.Partition)
			if _, twice := all[key]; !twice || isOurs {
				all[key] = e
			}
		}
	}
	return all
}

// Anyone who can write to the checkpoint topic can replace or remove the entry of an object. During
// a session, each load writes the entry again. A takeover can detect the change only from the
// topics.
//
// A forwarder records the events of an object in the order of their offsets in the event topic, and
// writes a tombstone only after a removal. So the entry of an existing object was erased if the next
// record is a tombstone, or an entry of an event that isn't later. The cause is another writer, a
// forwarder that no longer found the event, or a forwarder that removed a forged entry. The event
// topic shows which entries to restore.

// erasedEntry is the entry of an existing object whose next record can't be a valid successor.
type erasedEntry struct {
	record.Entry
	by int64 // the offset of that next record
}

// read applies the next record of the partition.
func (p *part) read(offset int64, key string, e record.Entry) {
	state := erasedEntry{p.entries[key], offset}
	if !isState(state.Entry) {
		state = p.erased[key]
	}
	if isState(state.Entry) && (e == (record.Entry{}) || state.isErasedBy(e)) {
		p.erased[key] = state
	} else {
		delete(p.erased, key)
	}
	if e == (record.Entry{}) {
		delete(p.entries, key)
	} else {
		p.entries[key] = e
	}
}

// isState reports whether an entry describes an existing object.
func isState(e record.Entry) bool { return e != (record.Entry{}) && e.Type == "" && !e.Deleted }

// isErasedBy reports whether other, the object's next entry, erased e. This is the case if other is
// for the same partition, and describes neither the event of e nor a later event.
func (e erasedEntry) isErasedBy(other record.Entry) bool {
	return other.Topic == e.Topic && other.Partition == e.Partition &&
		(other.Offset < e.Offset || other.Offset == e.Offset && !other.IsSameEvent(e.Entry))
}
