package stored

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Reader reads the records of one Kubernetes cluster. It is safe for concurrent use.
type Reader struct {
	client              *broker.Client
	parser              record.Parser
	cluster, checkpoint string
	invalid             *publish.Invalid
}

// New returns a Reader for the records of a cluster and its checkpoint topic. invalid receives the
// records that no forwarder writes, and may be nil.
func New(client *broker.Client, cluster, checkpointTopic string, invalid *publish.Invalid) *Reader {
	return &Reader{client: client, parser: record.NewParser(cluster, checkpointTopic), cluster: cluster, checkpoint: checkpointTopic, invalid: invalid}
}

// Owns reports whether a key belongs to the cluster.
func (s *Reader) Owns(key []byte) bool { return s.parser.Owns(key) }

// Read calls each with the records of a range, like [broker.Client.Read], and reports the
// batches that it skips.
func (s *Reader) Read(ctx context.Context, topic string, partition int, from, to int64, each func(broker.Record) error) error {
	_, err := s.client.Read(ctx, topic, partition, from, to, each, s.refuse)
	return err
}

// ReadCounted is like [Reader.Read], and reports its progress to c, in offsets.
func (s *Reader) ReadCounted(ctx context.Context, c *longwork.Counter, topic string, partition int, from, to int64, each func(broker.Record) error) error {
	c.Expect(max(0, to-from))
	next := from
	err := s.Read(ctx, topic, partition, from, to, func(r broker.Record) error {
		c.Add(r.Offset + 1 - next)
		next = r.Offset + 1
		return each(r)
	})
	if err == nil {
		c.Add(max(0, to-next)) // the last offsets might belong to compacted or control records
	}
	return err
}

// ReadOne reads the record at an offset, like [broker.Client.ReadOne].
func (s *Reader) ReadOne(ctx context.Context, topic string, partition int, offset int64) (r broker.Record, found bool, err error) {
	return s.client.ReadOne(ctx, topic, partition, offset, s.refuse)
}

// ReadStored reads a record that was stored, like [broker.Client.ReadStored].
func (s *Reader) ReadStored(ctx context.Context, topic string, partition int, offset int64) (r broker.Record, found bool, err error) {
	return s.client.ReadStored(ctx, topic, partition, offset, s.refuse)
}

// ReadFirst reads the first record of a range, like [broker.Client.ReadFirst].
func (s *Reader) ReadFirst(ctx context.Context, topic string, partition int, from, to int64) (r broker.Record, found bool, err error) {
	return s.client.ReadFirst(ctx, topic, partition, from, to, s.refuse)
}

// refuse reports a batch that cannot be read.
func (s *Reader) refuse(r broker.Refused) {
	reason := event.InvalidBatch
	if errors.Is(r.Err, recordbatch.ErrTooLarge) {
		reason = event.InvalidSize
	}
	s.Report(r.Topic, r.Partition, r.First, event.Invalid(reason, fmt.Errorf("the batch up to offset %d cannot be read: %w", r.Last, r.Err)))
}

// Report reports a record that no forwarder writes. The caller continues without it.
func (s *Reader) Report(topic string, partition int, offset int64, err error) {
	s.invalid.Report(topic, publish.PositionOf(partition, offset), err, "topic", topic, "partition", partition, "offset", offset)
}

// EntryOf returns the checkpoint entry for a record of an event topic. For the tombstone of a
// delete, it returns the entry of the delete. For any other tombstone, it returns the zero entry.
// If the record is not valid, EntryOf reports it and returns false.
func (s *Reader) EntryOf(r broker.Record, topic string, partition int) (e record.Entry, ok bool) {
	e, err := s.parser.Event(r, topic, partition)
	if err != nil {
		s.Report(topic, partition, r.Offset, err)
		return record.Entry{}, false
	}
	return e, true
}

// Object returns an object's event at a position. It returns the zero value if the topic no longer
// holds the event, or holds another record at that position.
func (s *Reader) Object(ctx context.Context, topic string, k event.Key, position uint64) (publish.Stored, error) {
	p := publish.Partition(position)
	r, found, err := s.ReadOne(ctx, topic, p, publish.Offset(position))
	if err != nil || !found || string(r.Key) != event.PartitionKey(s.cluster, k) {
		return publish.Stored{}, err
	}
	e, ok := s.EntryOf(r, topic, p)
	if !ok || r.Value == nil {
		return publish.Stored{}, nil
	}
	object := publish.Stored{Acked: e.Acked()}
	m, err := binding.Decode(r.Headers, r.Value)
	if err == nil {
		err = object.Read(m)
	}
	if err != nil {
		s.Report(topic, p, r.Offset, event.Invalid(event.InvalidData, err))
	}
	return object, nil
}

// EventAt returns the entry of an object's event at a position. If compaction removed a delete
// there, it returns the entry from the delete's tombstone. It returns the zero value if the
// position has no valid event of the object.
func (s *Reader) EventAt(ctx context.Context, topic, key string, position uint64) (record.Entry, error) {
	p := publish.Partition(position)
	r, found, err := s.ReadOne(ctx, topic, p, publish.Offset(position))
	if err != nil {
		return record.Entry{}, fmt.Errorf("read the stored event: %w", err)
	}
	if !found || string(r.Key) != key {
		return s.RemovedAt(ctx, topic, key, position)
	}
	if e, ok := s.EntryOf(r, topic, p); ok && r.Value != nil {
		return e, nil
	}
	return record.Entry{}, nil
}

// RemovedAt returns the entry of a delete that compaction removed, from the delete's tombstone at
// the next offset. It returns the zero value if the topic has no such tombstone.
func (s *Reader) RemovedAt(ctx context.Context, topic, key string, position uint64) (record.Entry, error) {
	p := publish.Partition(position)
	r, found, err := s.ReadOne(ctx, topic, p, publish.Offset(position)+1)
	if err != nil {
		return record.Entry{}, fmt.Errorf("read the stored event: %w", err)
	}
	if found && r.Value == nil && string(r.Key) == key {
		if e, ok := s.EntryOf(r, topic, p); ok {
			return e, nil
		}
	}
	return record.Entry{}, nil
}

// ReadCheckpoint calls each with the records of a partition of the checkpoint topic, up to an offset. It
// counts them like [Reader.ReadCounted].
func (s *Reader) ReadCheckpoint(ctx context.Context, c *longwork.Counter, partition int, until int64, each func(broker.Record, record.Checkpoint) error) error {
	err := s.ReadCounted(ctx, c, s.checkpoint, partition, 0, until, func(r broker.Record) error { return each(r, s.parse(r, partition)) })
	if err != nil {
		return fmt.Errorf("read partition %d of the checkpoint topic %q: %w", partition, s.checkpoint, err)
	}
	return nil
}

// parse parses a record of the checkpoint topic.
func (s *Reader) parse(r broker.Record, partition int) record.Checkpoint {
	c, err := s.parser.Checkpoint(r, partition)
	if err != nil {
		s.Report(s.checkpoint, partition, r.Offset, err)
		return record.Checkpoint{}
	}
	return c
}

// LookUp reads the record at the start of a range. If the record does not have the range's key, LookUp
// returns a record without a key.
func (s *Reader) LookUp(ctx context.Context, topic string, partition int, read takeover.Read) (takeover.Record, bool, error) {
	r, found, err := s.ReadOne(ctx, topic, partition, read.From)
	if err != nil || !found || string(r.Key) != read.Key {
		return takeover.Record{Offset: read.From}, found, err
	}
	return s.RecordOf(r, topic, partition), true, nil
}

// RecordOf parses a record of an event topic for a takeover.
func (s *Reader) RecordOf(r broker.Record, topic string, partition int) takeover.Record {
	e, ok := s.EntryOf(r, topic, partition)
	return takeover.Record{Offset: r.Offset, Key: string(r.Key), Entry: e, Valid: ok, Time: r.Time.Unix()}
}

// Holds looks up the record at an entry's offset. found reports whether the log has such a record,
// and is reports whether the entry describes it.
func (s *Reader) Holds(ctx context.Context, of takeover.Keyed) (found, is bool, err error) {
	r, found, err := s.LookUp(ctx, of.Topic, of.Partition, of.LookUp())
	return found, err == nil && found && of.Is(r), err
}
