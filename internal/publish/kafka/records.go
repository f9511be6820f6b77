package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

type (
	entry      = record.Entry
	keyedEntry = takeover.Keyed
)

// read calls each with the records of a range, like [broker.Client.Read], and reports the
// batches that it skips.
func (b *Bus) read(ctx context.Context, topic string, partition int, from, to int64, each func(broker.Record) error) error {
	_, err := b.client.Read(ctx, topic, partition, from, to, each, b.refuse)
	return err
}

// readCounted is like read, and also counts the offsets in c.
func (b *Bus) readCounted(ctx context.Context, c *longwork.Counter, topic string, partition int, from, to int64, each func(broker.Record) error) error {
	c.Expect(max(0, to-from))
	next := from
	err := b.read(ctx, topic, partition, from, to, func(r broker.Record) error {
		c.Add(r.Offset + 1 - next)
		next = r.Offset + 1
		return each(r)
	})
	if err == nil {
		c.Add(max(0, to-next)) // the last offsets may be compacted, or those of control records
	}
	return err
}

// readOne reads the record at an offset, like [broker.Client.ReadOne].
func (b *Bus) readOne(ctx context.Context, topic string, partition int, offset int64) (r broker.Record, found bool, err error) {
	return b.client.ReadOne(ctx, topic, partition, offset, b.refuse)
}

// refuse reports a batch that cannot be read.
func (b *Bus) refuse(r broker.Refused) {
	reason := event.InvalidBatch
	if errors.Is(r.Err, recordbatch.ErrTooLarge) {
		reason = event.InvalidSize
	}
	b.invalid(r.Topic, r.Partition, r.First, event.Invalid(reason, fmt.Errorf("the batch up to offset %d: %w", r.Last, r.Err)))
}

// invalid reports a record that no forwarder writes. The caller continues without it.
func (b *Bus) invalid(topic string, partition int, offset int64, err error) {
	b.opts.Invalid.Report(topic, publish.PositionOf(partition, offset), err, "topic", topic, "partition", partition, "offset", offset)
}

// entryOf returns the checkpoint entry for a record of an event topic. For the tombstone of a
// delete, it returns the entry of the delete. For any other tombstone, it returns the zero entry.
// ok is false if the record is not valid.
func (b *Bus) entryOf(r broker.Record, topic string, partition int) (e entry, ok bool) {
	e, err := b.parser.Event(r, topic, partition)
	if err != nil {
		b.invalid(topic, partition, r.Offset, err)
		return entry{}, false
	}
	return e, true
}

// eventAt returns the entry of an object's event at a position. If compaction removed a delete
// there, it returns the entry from the delete's tombstone. It returns the zero value if the
// position has no valid event of the object.
func (b *Bus) eventAt(ctx context.Context, topic, key string, position uint64) (entry, error) {
	p := publish.Partition(position)
	r, found, err := b.readOne(ctx, topic, p, publish.Offset(position))
	if err != nil {
		return entry{}, fmt.Errorf("read what the bus holds: %w", err)
	}
	if !found || string(r.Key) != key {
		return b.removedAt(ctx, topic, key, position)
	}
	if e, ok := b.entryOf(r, topic, p); ok && r.Value != nil {
		return e, nil
	}
	return entry{}, nil
}

// removedAt returns the entry of a delete that compaction removed, from the delete's tombstone at
// the next offset. It returns the zero value if the topic has no such tombstone.
func (b *Bus) removedAt(ctx context.Context, topic, key string, position uint64) (entry, error) {
	p := publish.Partition(position)
	r, found, err := b.readOne(ctx, topic, p, publish.Offset(position)+1)
	if err != nil {
		return entry{}, fmt.Errorf("read what the bus holds: %w", err)
	}
	if found && r.Value == nil && string(r.Key) == key {
		if e, ok := b.entryOf(r, topic, p); ok {
			return e, nil
		}
	}
	return entry{}, nil
}

// checkpoint parses a record of the checkpoint topic.
func (b *Bus) checkpoint(r broker.Record, partition int) record.Checkpoint {
	c, err := b.parser.Checkpoint(r, partition)
	if err != nil {
		b.invalid(b.opts.CheckpointTopic, partition, r.Offset, err)
		return record.Checkpoint{}
	}
	return c
}
