package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// TestALostRecordIsNotTakenForCompacted verifies that a takeover distinguishes a lost event from a
// compacted one. In both cases, the highest recorded offset has no record. Here, no later record
// has the same key, so the event was lost, and the log has an earlier event of the object.
func TestALostRecordIsNotTakenForCompacted(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	w.lose(b, m, w.commitTransaction(), true)
	crash(b)
	for range 2 { // the first takeover records what it finds for the second
		b = w.open()
		w.wantLoaded(b, map[event.Key]uint64{m.Key: at})
		if live := w.live(b); live[m.Key] != at {
			t.Errorf("live is %v, want %s at %d", live, m.Key, at)
		}
		crash(b)
	}
}

// TestALostRecordFollowsAForeignOne verifies that only a later record of the same key shows that
// compaction removed the event at the highest recorded offset. The takeover also reads an earlier
// record of that key, because it starts at a foreign record that no load has read.
func TestALostRecordFollowsAForeignOne(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	gone, m := w.message("gone", 1, 0), w.message("web", 1, 0)
	want := map[event.Key]uint64{gone.Key: w.mustPublish(b, gone)}
	first := w.commitTransaction()
	want[m.Key] = w.mustPublish(b, m) // after a foreign record
	w.lose(b, gone, first, true)
	w.lose(b, m, w.commitTransaction(), true)
	crash(b)
	w.wantLoaded(w.open(), want)
}

// commitTransaction commits a transaction with one record to partition 0. It returns the offset of
// the commit marker, where consumers find no record.
func (w *writers) commitTransaction() int64 {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.opts.Broker.Addrs...), kgo.TransactionalID(w.opts.Topic+".foreign"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	r, err := client.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.opts.Topic, Key: []byte("foreign"), Value: []byte("1")}).First()
	if err == nil {
		err = client.EndTransaction(w.t.Context(), kgo.TryCommit)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	await(w.t, "the end of the transaction is stored", func() error { // the broker responds earlier
		if end := endOffsets(w.t.Context(), w.t, w.opts.Broker.Addrs[0], w.opts.Topic)[0]; end < r.Offset+2 {
			return fmt.Errorf("the partition ends at %d", end)
		}
		return nil
	})
	return r.Offset + 1
}

// TestTheLastRecordHasOtherHeaders verifies that a load also compares the headers of the last
// record. A record with the same key and value can be another event, because the attributes are in
// the headers.
func TestTheLastRecordHasOtherHeaders(t *testing.T) {
	var changed atomic.Bool
	w := newWriters(t, 1)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	w.opts.Compression = recordbatch.None
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if other := withType(batch, event.Updated, event.Created); topic == w.opts.Topic && !bytes.Equal(other, batch) {
			changed.Store(true)
			batch = other
		}
		return client.Produce(ctx, topic, partition, batch)
	}
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	r, found, err := client.ReadOne(t.Context(), w.opts.Topic, 0, publish.Offset(at))
	if !changed.Load() || !found || err != nil || !bytes.Equal(r.Value, m.Data) {
		t.Fatalf("the topic holds the event with other headers: %t, %+v, %v", changed.Load(), r, err)
	}
	if err := b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); !errors.Is(err, sender.ErrDataLost) {
		t.Errorf("got %v, want %v", err, sender.ErrDataLost)
	}
}

// withType returns an uncompressed batch (https://kafka.apache.org/documentation/#recordbatch)
// with another type of the same length in the headers of its records.
func withType(batch []byte, from, to event.Type) []byte {
	const crc, attributes = 17, 21
	other := bytes.ReplaceAll(batch, []byte(from), []byte(to))
	binary.BigEndian.PutUint32(other[crc:], crc32.Checksum(other[attributes:], crc32.MakeTable(crc32.Castagnoli)))
	return other
}
