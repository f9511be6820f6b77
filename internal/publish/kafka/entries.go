package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Anyone who can write to the checkpoint topic can add an entry for an object. A takeover
// trusts the last entry of an object in the partition where the entries of the object
// belong. A load does not trust entries that others have written since the takeover,
// because the session's index has the position of every object's last event. After such an
// entry, the load writes the right one again, or removes it if the object has no event.

// doubts are the records in one partition of the checkpoint topic that may not describe the
// last event of their object.
type doubts struct {
	home   int              // the partition of the checkpoint topic
	unread []span           // what others have written to it
	last   map[string]doubt // by partition key, if no other record of the key follows
}

type doubt struct {
	offset  int64
	foreign bool
	entry   entry
}

// takeForeign is takeUnread for the records of other writers only. While a batch is in
// flight, it leaves everything after the last known record to the next load, because the
// batch can be stored there.
func (s *sender) takeForeign(end int64) []span {
	s.mu.Lock()
	sending := !s.since.IsZero()
	s.mu.Unlock()
	if sending {
		end = 0
	}
	return s.takeUnread(end)
}

// isObject reports whether a key is that of an object of the cluster.
func (l *loading) isObject(key []byte) bool {
	if !l.b.parser.Owns(key) || len(key) > event.MaxText {
		return false
	}
	_, _, err := event.ParsePartitionKey(string(key))
	return err == nil
}

// isStray reports whether an entry is for an object that has no event, or whose last event
// is recorded in another partition. Another writer wrote such an entry, and a takeover can
// have trusted it.
func (l *loading) isStray(home int, key []byte, e entry) bool {
	_, open := l.start[e.Topic] // the index has the objects of open topics
	return open && e.Type == "" && !l.s.isHome(home, l.s.index.position(identify(key)))
}

// isHome reports whether an event is recorded in a partition of the checkpoint topic.
func (s *session) isHome(home int, position uint64) bool {
	return position != 0 && s.recorder.home(publish.Partition(position)) == home
}

// replaceAll replaces the records in doubt. It reports whether it replaced all of them.
func (l *loading) replaceAll(ctx context.Context, d doubts) (bool, error) {
	keys := slices.Collect(maps.Keys(d.last))
	var left atomic.Int64
	err := each(ctx, len(keys), func(ctx context.Context, i int) error {
		replaced, err := l.replace(ctx, d.home, keys[i], d.last[keys[i]])
		if !replaced {
			left.Add(1)
		}
		return err
	})
	return left.Load() == 0, err
}

// replace writes the entry of an object's last event after a record in doubt. It removes
// the entry instead if there is no event, or if the event is recorded in another partition.
// It returns false if it has to wait for an event in flight, or for the answer to a foreign
// event.
func (l *loading) replace(ctx context.Context, home int, key string, d doubt) (bool, error) {
	id := identify([]byte(key))
	last := l.s.index.position(id)
	var is entry
	switch isHome := l.s.isHome(home, last); {
	case isHome:
		var err error
		if is, err = l.lastEvent(ctx, key, last); err != nil || is == (entry{}) {
			return false, err
		}
		if err := l.take([]byte(key), is); err != nil {
			return false, err
		}
		if is.Topic == d.entry.Topic && is.Position() == d.entry.Position() && is.IsSameEvent(d.entry) {
			return true, nil
		}
	case last != 0 && last == d.entry.Position() && !d.foreign: // the takeover trusted it
		return true, l.take([]byte(key), d.entry)
	}
	if l.s.producer.ID < 0 {
		return false, nil // nothing fences another writer, and it can have recorded a later event
	}
	if _, _, ok := l.s.index.begin(id, last); !ok {
		return false, nil
	}
	defer l.s.index.end(id, 0)
	if is == (entry{}) {
		l.s.recorder.erase([]byte(key), home)
	} else {
		l.s.recorder.put([]byte(key), is)
	}
	if d.foreign {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replaced = append(l.replaced, func() {
			l.b.invalid(l.b.opts.CheckpointTopic, home, d.offset,
				event.Invalid(event.InvalidPosition, fmt.Errorf("another writer's entry of %q, whose last event is at position %d", key, last)))
		})
	}
	return true, nil
}

// recordAgain writes the entry of an object's last event again, after the caller expected
// another position. The checkpoint topic can lack the entry: another writer replaced it
// with a record in a batch that no load can read, and compaction removed the replaced
// record.
func (s *session) recordAgain(key []byte, e entry) {
	id := identify(key)
	if s.producer.ID < 0 {
		return
	}
	if _, _, ok := s.index.begin(id, e.Position()); ok {
		s.recorder.put(key, e)
		s.index.end(id, 0)
	}
}

// lastEvent reads the last event of an object. It returns the zero value if the topic does
// not have it.
func (l *loading) lastEvent(ctx context.Context, key string, last uint64) (entry, error) {
	_, k, err := event.ParsePartitionKey(key)
	if err != nil {
		return entry{}, err
	}
	topic, p := l.b.topicOf(k), publish.Partition(last)
	if start := l.start[topic]; p < len(start) && publish.Offset(last) < start[p] {
		l.s.index.lost(identify([]byte(key)), last) // the records were deleted
	}
	return l.b.eventAt(ctx, topic, key, last)
}
