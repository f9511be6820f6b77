package kafka

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// At reads the event of an object at a position. It gives the zero value if the topic
// does not hold it any more, or another there.
func (b *Bus) At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error) {
	if position == 0 {
		return publish.Stored{}, nil
	}
	topic, partition := b.topicOf(k), publish.Partition(position)
	r, found, err := b.client.ReadOne(ctx, topic, partition, publish.Offset(position))
	if errors.Is(err, broker.ErrNoTopic) {
		return publish.Stored{}, nil
	}
	if err != nil {
		return publish.Stored{}, fmt.Errorf("read the event of %s at offset %d of partition %d of topic %q: %w", k, publish.Offset(position), partition, topic, err)
	}
	if !found || string(r.Key) != event.PartitionKey(b.opts.Cluster, k) {
		return publish.Stored{}, nil
	}
	e, ok := b.entryOf(r, topic, partition)
	if !ok {
		return publish.Stored{}, nil
	}
	stored := publish.Stored{Acked: e.acked()}
	m, err := decode(r)
	if err == nil {
		stored.Object, err = event.ObjectFromData(m.Attribute, m.Data)
	}
	if err != nil {
		b.log.Warn("the data of an event on the bus cannot be read", "topic", topic, "partition", partition, "offset", r.Offset, "err", err)
		stored.Object = nil
	}
	return stored, nil
}

// LastMarker gives the type and id of the last snapshot marker of a resource, "" if
// there is none.
func (b *Bus) LastMarker(_ context.Context, gr schema.GroupResource) (t event.Type, id string, err error) {
	s, err := b.current()
	if s == nil {
		return "", "", fmt.Errorf("look up the snapshot marker of %s: %w", gr, err)
	}
	e := s.marker(event.MarkerPartitionKey(b.opts.Cluster, gr))
	return e.Type, e.ID, nil
}

// Purge writes a tombstone after the last event of an object, if that is at the given
// position, so that a compacted topic gets rid of the object; with
// [Options.Tombstones] off it only forgets the object. It may be repeated.
func (b *Bus) Purge(ctx context.Context, k event.Key, upTo uint64) error {
	s, err := b.current()
	if s == nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	key := []byte(event.PartitionKey(b.opts.Cluster, k))
	id := identify(key)
	t := s.openTopic(b.topicOf(k))
	if t == nil {
		return fmt.Errorf("purge %s: %w", k, errOpening)
	}
	if _, _, ok := s.index.begin(id, upTo); !ok {
		return nil // there is a later event, or there will be
	}
	partition := binding.Partition(key, t.spread)
	if !b.opts.Tombstones {
		s.recorder.forget(key, partition)
		s.index.remove(id)
		return nil
	}
	result := make(chan error, 1)
	t.lanes[partition].add(&item{recordbatch.Record{Key: key, Timestamp: wallClock()}, func(_ int64, err error) {
		if err != nil {
			s.index.end(id, 0)
		} else {
			s.recorder.forget(key, partition)
			s.index.remove(id)
		}
		result <- err
	}})
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	return nil
}

// entryOf gives what the checkpoint should hold of a record of an event topic, the
// zero entry for a tombstone. Of a writer's marker, and of what is no event of ours, ok
// is false.
func (b *Bus) entryOf(r broker.Record, topic string, partition int) (e entry, ok bool) {
	if r.Value == nil {
		return entry{}, true
	}
	attribute, err := attributesOf(r)
	if err == nil {
		switch t := event.Type(attribute("type")); t {
		case event.WriterStarted:
			return entry{}, false
		case event.SnapshotStarted, event.SnapshotCompleted:
			return entry{Type: t, ID: attribute("id"), Topic: topic, Partition: partition, Offset: r.Offset, Time: r.Time.Unix()}, true
		case event.ClusterClaimed:
			return b.claimEntry(r, topic, partition)
		}
		var acked event.Acked
		if acked, err = event.AckedFrom(attribute); err == nil {
			acked.Stored = uint32(r.Time.Unix())
			return entryOf(acked, topic, partition, r.Offset), true
		}
	}
	b.log.Warn("a record on the bus is no event of ours", "topic", topic, "partition", partition, "offset", r.Offset, "err", err)
	return entry{}, false
}

// whoWrites says who has taken over, as far as that can be told.
func (b *Bus) whoWrites() string {
	ctx, cancel := context.WithTimeout(b.ctx, b.opts.AckTimeout)
	defer cancel()
	offsets, err := b.client.Offsets(ctx, b.opts.CheckpointTopic)
	if err != nil || len(offsets.End) == 0 {
		return ""
	}
	var last string
	writerKey := event.WriterPartitionKey(b.opts.Cluster, b.opts.CheckpointTopic, 0)
	_, err = b.client.Read(ctx, b.opts.CheckpointTopic, 0, 0, offsets.End[0], func(r broker.Record) error {
		if string(r.Key) == writerKey {
			if m, err := decode(r); err == nil {
				last = fmt.Sprintf("; the writer since %s is %s", m.Attribute("time"), writerOf(m))
			}
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return last
}
