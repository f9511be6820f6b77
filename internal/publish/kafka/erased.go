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

// Anyone who can write to the checkpoint topic can replace or remove the entry of an object.
// While a session lasts, a load writes the entry again. A takeover has only the topic. There, a
// forwarder records the events of an object in the order of their offsets in the event topic, and
// a tombstone after the last removal. So a state that is followed by a tombstone, or by an event
// that isn't later, was erased: by another writer, by a forwarder that didn't find the event any
// more, or in the place of an entry that another writer forged. The event topic tells.

// part is what a partition of the checkpoint topic says, by partition key.
type part struct {
	entries map[string]entry
	erased  map[string]erased
}

// erased is the entry of an object's state. A record that can't be its successor follows it.
type erased struct {
	entry
	by int64 // the offset of that record
}

// read takes the next record of the partition.
func (p *part) read(offset int64, key string, e entry) {
	state := erased{p.entries[key], offset}
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

// isState reports whether an entry is of an object that exists.
func isState(e entry) bool { return e != (entry{}) && e.Type == "" && !e.Deleted }

// isErasedBy reports whether another entry of the object is not of a later event.
func (e erased) isErasedBy(other entry) bool {
	return other.Topic == e.Topic && other.Partition == e.Partition &&
		(other.Offset < e.Offset || other.Offset == e.Offset && !other.IsSameEvent(e.entry))
}

// maxErased limits the events that a takeover reads to restore the entries of a topic. Another
// writer can make any number of them necessary.
const maxErased = 10_000

// erasedFrom returns the entries of a topic that were erased where they belong.
func (s *session) erasedFrom(topic string, parts []*part) map[string]erased {
	all := map[string]erased{}
	for home, part := range parts {
		for key, e := range part.erased {
			if e.Topic == topic && s.recorder.home(e.Partition) == home {
				all[key] = e
			}
		}
	}
	return all
}

// recordedIn returns the recorded entry of a key in a partition of the topic, or the one that was
// erased.
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

// restoreErased records the entries again that were erased although the topic holds their
// events, and no later record of the object: in memory and in the checkpoint topic.
func (s *session) restoreErased(ctx context.Context, a *recovery) error {
	maps.DeleteFunc(a.erased, func(key string, e erased) bool {
		if !a.holds(e.entry) || binding.Partition([]byte(key), a.t.spread) != e.Partition {
			return true
		}
		_, follows := a.tails[e.Partition].last[key]
		return follows
	})
	keys := slices.Collect(maps.Keys(a.erased))
	if len(keys) > maxErased {
		s.b.log.Warn("another writer replaced too many entries of the checkpoint topic, looking up a part of them", "topic", a.t.name, "entries", len(keys), "looked_up", maxErased)
		keys = keys[:maxErased]
	}
	var mu sync.Mutex
	return each(ctx, len(keys), func(ctx context.Context, i int) error {
		e := a.erased[keys[i]]
		_, is, err := s.b.holds(ctx, recordedAt{keys[i], e.entry})
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
