// Package readertest writes valid and invalid records to Kafka topics, for tests of readers. It doesn't
// use the writer of package kafka.
package readertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// limit bounds every wait. Only a failing test reaches it.
const limit = 3 * time.Minute

// Writer writes to one topic.
type Writer struct {
	Topic      string
	Partitions int
	Structured bool
	Valued     bool // give markers a value, as earlier releases do

	t      testing.TB
	addr   string
	client *broker.Client
}

// New returns a writer for an existing topic.
func New(t testing.TB, addr, topic string, partitions int) *Writer {
	t.Helper()
	client, err := broker.New(broker.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &Writer{Topic: topic, Partitions: partitions, t: t, addr: addr, client: client}
}

// NewTopic creates a topic for t and returns a writer for it.
func NewTopic(t testing.TB, b interface {
	kafkabrokertest.TopicCreator
	Addr() string
}, prefix string, partitions int, config map[string]string) *Writer {
	t.Helper()
	return New(t, b.Addr(), kafkabrokertest.Topic(t, b, prefix, partitions, config), partitions)
}

// Put writes an event to the partition of its key and returns its position.
func (w *Writer) Put(m *event.Message) uint64 {
	w.t.Helper()
	return w.PutAt(binding.Partition([]byte(m.Attribute("partitionkey")), w.Partitions), m)
}

// TryPut is Put for goroutines other than the test's own. It returns errors instead of failing the
// test.
func (w *Writer) TryPut(m *event.Message) (uint64, error) {
	r, err := w.encode(m)
	if err != nil {
		return 0, err
	}
	return w.TryRecord(binding.Partition(r.Key, w.Partitions), r)
}

// PutAt writes an event to the given partition, even if it is the wrong partition for the event.
func (w *Writer) PutAt(partition int, m *event.Message) uint64 {
	w.t.Helper()
	r, err := w.encode(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.PutRecord(partition, r)
}

func (w *Writer) encode(m *event.Message) (r recordbatch.Record, err error) {
	if m.Marker && !w.Valued {
		r, err = binding.EncodeControl(m)
	} else {
		r, err = binding.Encode(m, w.Structured)
	}
	r.Timestamp = time.Now()
	return r, err
}

// Tombstone writes a Kafka tombstone, a record without a value, for an object.
func (w *Writer) Tombstone(cluster string, k event.Key) uint64 {
	w.t.Helper()
	key := []byte(event.PartitionKey(cluster, k))
	return w.PutRecord(binding.Partition(key, w.Partitions), recordbatch.Record{Key: key, Timestamp: time.Now()})
}

// PutRecord writes an arbitrary record and returns its position.
func (w *Writer) PutRecord(partition int, r recordbatch.Record) uint64 {
	w.t.Helper()
	position, err := w.TryRecord(partition, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return position
}

// TryRecord is PutRecord for goroutines other than the test's own. It returns errors instead of failing
// the test.
func (w *Writer) TryRecord(partition int, r recordbatch.Record) (uint64, error) {
	var batch recordbatch.Batch
	batch.Append(r)
	encoded, err := batch.Encode(nil, recordbatch.Zstd, broker.NoProducer, recordbatch.NoSequence)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		offset, err := w.client.Produce(ctx, w.Topic, partition, encoded)
		switch {
		case err == nil:
			return publish.PositionOf(partition, offset), nil
		case failure.KindOf(err) != failure.Retry || ctx.Err() != nil:
			return 0, err
		}
		select { // a new topic may not have a leader yet
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Recreate deletes the topic and creates it again, without records. It doesn't keep the configuration of
// the topic.
func (w *Writer) Recreate() {
	w.t.Helper()
	admin := kafkabrokertest.Client(w.t, w.addr)
	admin.Timeout = limit
	before, err := w.client.TopicID(w.t.Context(), w.Topic)
	if err != nil {
		w.t.Fatal(err)
	}
	deleted, err := admin.DeleteTopics(w.t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{w.Topic}})
	if err == nil {
		err = deleted.Errors[w.Topic]
	}
	if err != nil {
		w.t.Fatal(err)
	}
	poll.Try(w.t, "the topic is recreated", func(ctx context.Context) error {
		created, err := admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: w.Topic, NumPartitions: w.Partitions, ReplicationFactor: 1},
		}})
		if err == nil {
			err = created.Errors[w.Topic]
		}
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return err
		}
		id, err := w.client.TopicID(ctx, w.Topic)
		if err != nil {
			return err
		}
		offsets, err := w.client.Offsets(ctx, w.Topic)
		if err == nil && (id == before || slices.Max(offsets.End) > 0) {
			err = errors.New("the broker has the earlier topic")
		}
		return err
	})
}
