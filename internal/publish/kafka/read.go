package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// At returns the event of an object at a position. It returns the zero value if the topic no longer
// holds the event, or holds another record at that position. It takes at most [Options.AckTimeout].
func (b *Bus) At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error) {
	if position == 0 {
		return publish.Stored{}, nil
	}
	topic, partition := b.topicOf(k), publish.Partition(position)
	ctx, cancel := context.WithTimeout(ctx, b.opts.AckTimeout)
	defer cancel()
	r, found, err := b.readOne(ctx, topic, partition, publish.Offset(position))
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
	if !ok || r.Value == nil {
		return publish.Stored{}, nil
	}
	stored := publish.Stored{Acked: e.Acked()}
	m, err := decode(r)
	if err == nil {
		err = stored.Read(m)
	}
	if err != nil {
		b.invalid(topic, partition, r.Offset, event.Invalid(event.InvalidData, err))
	}
	return stored, nil
}

// LastMarker returns the type and ID of the last snapshot marker of a resource, "" for none. It
// ignores a marker of an earlier release, because such a marker is a row in tables of the topic.
// The caller then publishes another marker, which replaces the row.
func (b *Bus) LastMarker(_ context.Context, gr schema.GroupResource) (t event.Type, id string, err error) {
	s, err := b.current()
	if s == nil {
		return "", "", fmt.Errorf("look up the snapshot marker of %s: %w", gr, err)
	}
	e := s.marker(event.MarkerPartitionKey(b.opts.Cluster, gr))
	if !e.NoValue {
		return "", "", nil
	}
	return e.Type, e.ID, nil
}

// Purge removes the checkpoint entry of an object whose last event, a delete, is at the
// given position. If no tombstone follows the delete yet, because [Options.Tombstones] is
// off, Purge first writes one to a compacted topic. It can be repeated. It takes at most
// [Options.AckTimeout]; a tombstone that is not acknowledged by then can be stored later.
//
// Purge keeps the entry of the newest event that the session recorded in a partition, and returns
// [event.ErrNewest] for it. The next writer learns only from that entry how far the log must reach.
// For events before the session, it learns this from the session's marker.
func (b *Bus) Purge(ctx context.Context, k event.Key, upTo uint64) error {
	s, err := b.current()
	if s == nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	key := []byte(event.PartitionKey(b.opts.Cluster, k))
	id := index.Of(key)
	t := s.openTopic(b.topicOf(k))
	if t == nil {
		return fmt.Errorf("purge %s: %w", k, errOpening)
	}
	if _, _, ok := s.index.Begin(id, upTo); !ok {
		return nil // the object has a later event, or one in flight
	}
	partition := binding.Partition(key, t.spread)
	if t.newest[partition].Load() == publish.Offset(upTo) {
		s.index.End(id, 0)
		return fmt.Errorf("purge %s: %w", k, event.ErrNewest)
	}
	if t.senders[partition].IsStalled(time.Now()) { // does not delay the purges that follow
		s.index.End(id, 0)
		return fmt.Errorf("purge %s: %w", k, errPartitionBusy)
	}
	if b.opts.Tombstones || b.opts.CleanupPolicy != "compact" {
		s.recorder.Forget(key, partition)
		s.index.Remove(id)
		return nil
	}
	result := make(chan error, 1)
	tombstone := &sender.Item{Record: recordbatch.Record{Key: key}, Done: func(_ int64, err error) {
		if err != nil {
			s.index.End(id, 0)
		} else {
			s.recorder.Forget(key, partition)
			s.index.Remove(id)
		}
		result <- err
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, b.opts.AckTimeout, errTimeout)
	defer cancel()
	t.senders[partition].Add(tombstone)
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if t.senders[partition].Withdraw(tombstone) {
			s.index.End(id, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	return nil
}

// whoWrites describes the writer that took over, "" if unknown.
func (b *Bus) whoWrites() string {
	ctx, cancel := context.WithTimeout(b.ctx, b.opts.AckTimeout)
	defer cancel()
	last, err := b.lastWriter(ctx)
	if err != nil || last == (Writer{}) {
		return ""
	}
	return fmt.Sprintf("; the writer since %s is %s", last.Since, last.Name)
}

// lastWriter returns the writer that took over last, the zero value for none.
func (b *Bus) lastWriter(ctx context.Context) (last Writer, err error) {
	offsets, err := b.client.Offsets(ctx, b.opts.CheckpointTopic)
	if err != nil || len(offsets.End) == 0 {
		return Writer{}, err
	}
	writerKey := event.WriterPartitionKey(b.opts.Cluster, b.opts.CheckpointTopic, 0)
	err = b.read(ctx, b.opts.CheckpointTopic, 0, 0, offsets.End[0], func(r broker.Record) error {
		if string(r.Key) == writerKey {
			if m, err := decode(r); err == nil {
				last = Writer{Name: fmt.Sprintf("%.253s", writerOf(m)), Since: fmt.Sprintf("%.40s", m.Attribute("time"))}
			}
		}
		return nil
	})
	return last, err
}
