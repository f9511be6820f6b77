package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
)

// Anyone who can write to the checkpoint topic can replace or remove the entry of an object. During a
// session, each load writes the entry again. A takeover has only the topics.
//
// A forwarder records the events of an object in the order of their offsets in the event topic, and writes a
// tombstone only after a removal. So the entry of an existing object was erased if a tombstone follows it, or
// an entry of an event that isn't later. The cause is another writer, a forwarder that no longer found the
// event, or a forwarder that removed a forged entry. The event topic shows which entries to restore.

// checkpointPart is the content of one partition of the checkpoint topic, by partition key.
type checkpointPart struct {
	entries map[string]entry
	erased  map[string]erasedEntry
}

// erasedEntry is the entry of an existing object, followed by a record that can't be its successor.
type erasedEntry struct {
	entry
	by int64 // the offset of that record
}

// read applies the next record of the partition.
func (p *checkpointPart) read(offset int64, key string, e entry) {
	state := erasedEntry{p.entries[key], offset}
	if !isState(state.entry) {
		state = p.erased[key]
	}
	if isState(state.entry) && (e == (entry{}) || state.isErasedBy(e)) {
		p.erased[key] = state
	} else {
		delete(p.erased, key)
	}
	if e == (entry{}) {
		delete(p.entries, key)
	} else {
		p.entries[key] = e
	}
}

// isState reports whether an entry describes an existing object.
func isState(e entry) bool { return e != (entry{}) && e.Type == "" && !e.Deleted }

// isErasedBy reports whether the next entry of the object does not describe a later event.
func (e erasedEntry) isErasedBy(other entry) bool {
	return other.Topic == e.Topic && other.Partition == e.Partition &&
		(other.Offset < e.Offset || other.Offset == e.Offset && !other.IsSameEvent(e.entry))
}

// maxErased limits the events that a takeover reads to restore the entries of one topic, because another
// writer can erase any number of entries.
const maxErased = 10_000

// erasedFrom returns the erased entries of a topic, from the partitions where they belong.
func (s *session) erasedFrom(topic string, parts []*checkpointPart) map[string]erasedEntry {
	all := map[string]erasedEntry{}
	for home, part := range parts {
		for key, e := range part.erased {
			if e.Topic == topic && s.recorder.home(e.Partition) == home {
				all[key] = e
			}
		}
	}
	return all
}

// recordedIn returns the entry of a key in a partition of the topic, even if the entry was erased.
func (a *recovery) recordedIn(p int, key string) entry {
	e := a.entries[key]
	if was, found := a.erased[key]; found {
		e = was.entry
	}
	if e.Partition != p {
		return entry{}
	}
	return e
}

// restoreErased records erased entries again, in memory and in the checkpoint topic. It restores an entry if
// the event topic still has the event, and no later record of the object.
func (s *session) restoreErased(ctx context.Context, a *recovery) error {
	maps.DeleteFunc(a.erased, func(key string, e erasedEntry) bool {
		if !a.holds(e.entry) || binding.Partition([]byte(key), a.t.spread) != e.Partition {
			return true
		}
		_, follows := a.tails[e.Partition].last[key]
		return follows
	})
	keys := slices.Collect(maps.Keys(a.erased))
	if len(keys) > maxErased {
		s.b.log.Warn("another writer replaced too many entries of the checkpoint topic, looking up only some of them", "topic", a.t.name, "entries", len(keys), "looked_up", maxErased)
		keys = keys[:maxErased]
	}
	var mu sync.Mutex
	return each(ctx, len(keys), func(ctx context.Context, i int) error {
		e := a.erased[keys[i]]
		_, is, err := s.b.holds(ctx, keyedEntry{keys[i], e.entry})
		if err != nil || !is {
			return err
		}
		a.t.senders[e.Partition].notBefore(time.Unix(e.Time+1, 0))
		s.recorder.put([]byte(keys[i]), e.entry)
		mu.Lock()
		defer mu.Unlock()
		a.entries[keys[i]] = e.entry
		s.b.invalid(s.b.opts.CheckpointTopic, s.recorder.home(e.Partition), e.by,
			event.Invalid(event.InvalidPosition, fmt.Errorf("the entry of %q, whose last event is at position %d, was replaced", keys[i], e.Position())))
		return nil
	})
}
