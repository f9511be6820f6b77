package kafka

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reload"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// Kafka has no compare-and-set, so any client that can write to an event topic can append a record
// with the key of an object. A session knows which offsets it has written. Each load reads the
// other offsets. Other clusters can share the topic, and the load ignores their records. A record
// with the key of one of the cluster's objects is foreign. A foreign record is the last event of
// its object unless the session has published a later event. The forwarder repairs a foreign
// record: it publishes the state of the object again.
//
// A takeover trusts the valid events that it finds, whoever wrote them. An invalid record after the
// last event of an object is foreign, because compaction can remove the event before it.
//
// A session can record an event that follows another writer's unread record. Before it does so, it
// stores the offset of the unread record in its marker's entry. So the next takeover reads that
// record even if no load does.

// readForeign reads the records that other writers have added to the event topics since the last
// call. It yields each foreign record that is the last record of its object.
func (l *loading) readForeign(ctx context.Context) error {
	places := placesIn(l.s.opened())
	err := broker.Each(ctx, len(places), func(ctx context.Context, i int) error {
		at := places[i]
		ends := l.end[at.t.name]
		if at.p >= len(ends) {
			return nil // the topic was opened after the ends were read
		}
		unread := at.t.senders[at.p].TakeUnread(ends[at.p])
		if len(unread) == 0 {
			return nil
		}
		found, err := l.b.findForeign(ctx, at, unread)
		if err != nil {
			at.t.senders[at.p].PutBack(unread)
			return err
		}
		l.b.foreign.Add(found)
		return nil
	})
	if err == nil {
		err = l.yieldForeign()
	}
	if err != nil {
		return err
	}
	unanswered := l.b.foreign.First()
	for _, at := range places {
		at.t.senders[at.p].RecordRead(unanswered[at.t.name][at.p])
	}
	return nil
}

// findForeign returns the last foreign record of each key in a range of unread offsets. Some of the
// records can be the session's own (see [sender.Sender.TakeUnread]). [index.Foreign.Unanswered]
// drops these.
func (b *Bus) findForeign(ctx context.Context, at place, unread sender.Spans) (map[string]index.ForeignRecord, error) {
	found := map[string]index.ForeignRecord{}
	prefix := event.ClusterPartitionKeys(b.opts.Cluster)
	err := b.stored.Read(ctx, at.t.name, at.p, unread[0].From, unread[len(unread)-1].To, func(r broker.Record) error {
		switch {
		case !unread.Contains(r.Offset), !bytes.HasPrefix(r.Key, prefix):
			return nil
		case len(r.Key) > event.MaxText:
			b.stored.EntryOf(r, at.t.name, at.p) // reports the record as invalid
			return nil
		case binding.Partition(r.Key, at.t.spread) != at.p:
			b.log.Warn("ignoring a record of another writer in a partition that has no events of its object", "topic", at.t.name, "partition", at.p, "offset", r.Offset)
			return nil
		}
		if _, _, err := event.ParsePartitionKey(string(r.Key)); err != nil {
			return nil //nolint:nilerror // not the key of an object
		}
		at.t.senders[at.p].NotBefore(r.Time) // the repair must not have an earlier timestamp
		f, before := index.ForeignRecord{Tombstone: r.Value == nil}, found[string(r.Key)]
		switch e, ok := b.stored.EntryOf(r, at.t.name, at.p); {
		case ok && f.Tombstone && before.Entry.Deleted && e.Position() == before.Entry.Position() && e.IsSameEvent(before.Entry):
			before.Tombstone = true // the two records form one delete
			found[string(r.Key)] = before
			return nil
		case ok && !f.Tombstone && e.Type == "":
			f.Entry = e
		}
		f.Entry.Topic, f.Entry.Partition, f.Entry.Offset, f.Entry.Time = at.t.name, at.p, r.Offset, record.Stored(r.Time)
		found[string(r.Key)] = f
		return nil
	})
	return found, err
}

// yieldForeign yields the foreign records that are the last of their objects. The load has already
// yielded the entries in the checkpoint topic, so the foreign records take precedence.
func (l *loading) yieldForeign() error {
	for key, e := range l.b.foreign.Unanswered(l.s.index) {
		if err := l.take([]byte(key), e); err != nil {
			return err
		}
	}
	return nil
}

// doubts holds the records in doubt of one checkpoint partition.
type doubts struct {
	reload.Doubts

	unread sender.Spans // offsets in the partition that other writers have written
}

// isObject reports whether a key belongs to an object of the cluster.
func (l *loading) isObject(key []byte) bool {
	if !l.b.stored.Owns(key) || len(key) > event.MaxText {
		return false
	}
	_, _, err := event.ParsePartitionKey(string(key))
	return err == nil
}

// replaceAll replaces the records in doubt. It reports whether it replaced all of them.
func (l *loading) replaceAll(ctx context.Context, d *doubts) (bool, error) {
	keys := slices.Collect(maps.Keys(d.Last))
	var left atomic.Int64
	err := broker.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		replaced, err := l.replace(ctx, d, keys[i])
		if !replaced {
			left.Add(1)
		}
		return err
	})
	return left.Load() == 0, err
}

// replace applies the decision of [reload.Doubts.Remedy] about a record in doubt. It returns false
// if a later load must try again.
func (l *loading) replace(ctx context.Context, d *doubts, key string) (bool, error) {
	id, doubt := index.Of([]byte(key)), d.Last[key]
	last := l.s.index.Position(id)
	var is entry
	remedy := d.Remedy(key, last, nil)
	if remedy == reload.ReadEvent {
		var err error
		if is, err = l.lastEvent(ctx, key, last); err != nil {
			return false, err
		}
		if remedy = d.Remedy(key, last, &is); remedy != reload.Later {
			if err := l.take([]byte(key), is); err != nil {
				return false, err
			}
		}
	}
	switch remedy {
	case reload.Accept:
		return true, nil
	case reload.Trust:
		return true, l.take([]byte(key), doubt.Entry)
	case reload.ReadEvent, reload.Later:
		return false, nil
	case reload.Replace, reload.Erase:
	}
	if l.s.producer.ID < 0 {
		return false, nil // without a producer ID, nothing fences another writer, which might have recorded a later event
	}
	if _, _, ok := l.s.index.Begin(id, last); !ok { // an event is in flight, or a later one was acknowledged
		return false, nil
	}
	defer l.s.index.End(id, 0)
	if remedy == reload.Erase {
		l.s.recorder.Erase([]byte(key), d.Home)
	} else {
		l.s.recorder.Put([]byte(key), is)
	}
	if doubt.Foreign {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replaced = append(l.replaced, func() {
			l.b.stored.Report(l.b.opts.CheckpointTopic, d.Home, doubt.Offset,
				event.Invalid(event.InvalidPosition, fmt.Errorf("another writer replaced the entry of %q, whose last event is at position %d", key, last)))
		})
	}
	return true, nil
}

// recordAgain writes the entry of an object's last event again, after a publisher expected another
// position. The checkpoint topic might lack the entry: another writer can replace it with a record in
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
