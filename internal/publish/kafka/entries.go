package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// Any client that can write to the checkpoint topic can add an entry for an object. A takeover
// trusts the last entry of an object in the partition where the entries of the object belong. A
// load does not trust the entries that other writers have added since the takeover, because the
// session's index has the position of every object's last event. After such an entry, the load
// writes the correct entry again. If the object has no event, the load removes the entry instead.

// doubts are the records in one partition of the checkpoint topic that may not describe the
// last event of their object.
type doubts struct {
	home   int              // the partition of the checkpoint topic
	unread sender.Spans     // offsets in the partition that other writers have written
	last   map[string]doubt // last record of each partition key, if it is in doubt
}

type doubt struct {
	offset  int64
	foreign bool
	entry   entry
}

// isObject reports whether a key belongs to an object of the cluster.
func (l *loading) isObject(key []byte) bool {
	if !l.b.stored.Owns(key) || len(key) > event.MaxText {
		return false
	}
	_, _, err := event.ParsePartitionKey(string(key))
	return err == nil
}

// isStray reports whether an entry is for an object that has no event, or whose last event is
// recorded in another partition. Another writer wrote the entry, and a takeover may have trusted
// it.
func (l *loading) isStray(home int, key []byte, e entry) bool {
	_, open := l.start[e.Topic] // the index has the objects of open topics
	return open && e.Type == "" && !l.s.isHome(home, l.s.index.Position(index.Of(key)))
}

// isHome reports whether the event at a position is recorded in the given partition of the
// checkpoint topic.
func (s *session) isHome(home int, position uint64) bool {
	return position != 0 && s.recorder.Home(publish.Partition(position)) == home
}

// replaceAll replaces the records in doubt. It reports whether it replaced all of them.
func (l *loading) replaceAll(ctx context.Context, d doubts) (bool, error) {
	keys := slices.Collect(maps.Keys(d.last))
	var left atomic.Int64
	err := broker.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		replaced, err := l.replace(ctx, d.home, keys[i], d.last[keys[i]])
		if !replaced {
			left.Add(1)
		}
		return err
	})
	return left.Load() == 0, err
}

// replace writes the entry of an object's last event after a record in doubt. If the object has no
// event, or the event is recorded in another partition, replace removes the entry instead. It
// returns false if a later load must try again, because the object has an event in flight or an
// unanswered foreign event.
func (l *loading) replace(ctx context.Context, home int, key string, d doubt) (bool, error) {
	id := index.Of([]byte(key))
	last := l.s.index.Position(id)
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
		return false, nil // without a producer ID, nothing fences another writer, which may have recorded a later event
	}
	if _, _, ok := l.s.index.Begin(id, last); !ok {
		return false, nil
	}
	defer l.s.index.End(id, 0)
	if is == (entry{}) {
		l.s.recorder.Erase([]byte(key), home)
	} else {
		l.s.recorder.Put([]byte(key), is)
	}
	if d.foreign {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replaced = append(l.replaced, func() {
			l.b.stored.Report(l.b.opts.CheckpointTopic, home, d.offset,
				event.Invalid(event.InvalidPosition, fmt.Errorf("another writer's entry of %q, whose last event is at position %d", key, last)))
		})
	}
	return true, nil
}

// recordAgain writes the entry of an object's last event again, after a publisher expected another
// position. The checkpoint topic may lack the entry: another writer can replace it with a record in
// a batch that no load can read, and compaction then removes the entry.
func (s *session) recordAgain(key []byte, e entry) {
	id := index.Of(key)
	if s.producer.ID < 0 {
		return
	}
	if _, _, ok := s.index.Begin(id, e.Position()); ok {
		s.recorder.Put(key, e)
		s.index.End(id, 0)
	}
}

// lastEvent returns the entry of an object's last event, which it reads from the topic. It returns
// the zero value if the topic does not hold the event.
func (l *loading) lastEvent(ctx context.Context, key string, last uint64) (entry, error) {
	_, k, err := event.ParsePartitionKey(key)
	if err != nil {
		return entry{}, err
	}
	topic, p := l.b.topics.Template.Of(k), publish.Partition(last)
	if start := l.start[topic]; p < len(start) && publish.Offset(last) < start[p] {
		l.s.index.Lost(index.Of([]byte(key)), last) // the records were deleted
	}
	return l.b.stored.EventAt(ctx, topic, key, last)
}
