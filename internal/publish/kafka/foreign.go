package kafka

import (
	"bytes"
	"context"
	"maps"
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// Kafka has no compare-and-set, so any client that can write to an event topic can append a record
// with the key of an object. A session knows which offsets it has written. Each load reads the
// other offsets. Other clusters may have written to them too, and the load ignores the records of
// those clusters. A record with the key of one of the cluster's objects is foreign. It is the last
// event of the object unless the session has published a later one. The forwarder answers a foreign
// record: it publishes the state of the object again.
//
// A takeover trusts the valid events that it finds, whoever wrote them. An invalid record after the
// last event of an object is foreign, because compaction can remove the event before it.
//
// A session can record an event that follows another writer's unread record. Before it does so, it
// stores the offset of the unread record in the entry of its marker. So the next takeover reads
// that record even if no load does.

// foreignRecords are the last foreign records by partition key.
type foreignRecords struct {
	mu   sync.Mutex
	last map[string]foreignRecord
}

type foreignRecord struct {
	entry     entry // has only the place and the time, unless the record is an event or the entry is Foreign
	tombstone bool
}

func (f *foreignRecords) add(found map[string]foreignRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]foreignRecord{}
	}
	maps.Copy(f.last, found)
}

// unanswered returns the entries of the records that are still the last of their keys. It drops the
// records that a later event of the key answers, and the tombstones of unknown objects. It skips
// keys with an event in flight. Each record is in the partition of its key. The index can have a
// position in another partition, because a takeover trusted a record there, but that position never
// counts as later.
func (f *foreignRecords) unanswered(x *index.Index) map[string]entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]entry{}
	for key, r := range f.last {
		id, position := index.Of([]byte(key)), r.entry.Position()
		switch at := x.Position(id); {
		case at > position && publish.Partition(at) == publish.Partition(position), at == 0 && r.tombstone:
			delete(f.last, key)
		default:
			x.Found(id, position)
			if x.Position(id) == position {
				last[key] = r.entry
			}
		}
	}
	return last
}

// first returns the lowest offset of the records in each partition, by topic.
func (f *foreignRecords) first() map[string]map[int]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := map[string]map[int]int64{}
	for _, r := range f.last {
		if first[r.entry.Topic] == nil {
			first[r.entry.Topic] = map[int]int64{}
		}
		offsets := first[r.entry.Topic]
		if lowest, found := offsets[r.entry.Partition]; !found || r.entry.Offset < lowest {
			offsets[r.entry.Partition] = r.entry.Offset
		}
	}
	return first
}

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
		l.b.foreign.add(found)
		return nil
	})
	if err == nil {
		err = l.yieldForeign()
	}
	if err != nil {
		return err
	}
	unanswered := l.b.foreign.first()
	for _, at := range places {
		at.t.senders[at.p].RecordRead(unanswered[at.t.name][at.p])
	}
	return nil
}

func (b *Bus) findForeign(ctx context.Context, at place, unread sender.Spans) (map[string]foreignRecord, error) {
	found := map[string]foreignRecord{}
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
		at.t.senders[at.p].NotBefore(r.Time) // the answer must not have an earlier timestamp
		f := foreignRecord{tombstone: r.Value == nil}
		if e, ok := b.stored.EntryOf(r, at.t.name, at.p); ok && e.Type == "" && !f.tombstone {
			f.entry = e
		}
		f.entry.Topic, f.entry.Partition, f.entry.Offset, f.entry.Time = at.t.name, at.p, r.Offset, record.Stored(r.Time)
		found[string(r.Key)] = f
		return nil
	})
	return found, err
}

// yieldForeign yields the foreign records that are the last of their objects. The load has yielded
// the entries in the checkpoint topic before, so the foreign records take precedence.
func (l *loading) yieldForeign() error {
	for key, e := range l.b.foreign.unanswered(l.s.index) {
		if err := l.take([]byte(key), e); err != nil {
			return err
		}
	}
	return nil
}
