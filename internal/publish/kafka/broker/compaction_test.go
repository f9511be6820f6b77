package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestReadOverCompaction verifies that a read delivers every remaining record of a compacted
// log. Compaction leaves gaps, batches without their first or last records, and empty batches
// that preserve a producer's sequence. None of these may stop a read or hide a record.
func TestReadOverCompaction(t *testing.T) {
	b := kafkabrokertest.Start(t, kafkabroker.Options{Properties: map[string]string{
		"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "50", "log.retention.check.interval.ms": "50",
	}})
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "compacted", 1, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0",
	})
	next, last := int64(0), make(map[string]string) // last record by key, in the format of show
	write := func(id string, records ...recordbatch.Record) {
		t.Helper()
		p, err := c.InitProducerID(within(t), id+topic, NoProducer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			records[i].Timestamp = time.Now() // the broker rolls segments by record timestamps
		}
		if got := putAs(t, c, topic, 0, p, 0, records...); got != next {
			t.Fatalf("got offset %d, want %d", got, next)
		}
		for _, r := range records {
			last[string(r.Key)] = show(Record{Offset: next, Key: r.Key, Value: r.Value})
			next++
		}
	}
	many := func(n int, value string) (records []recordbatch.Record) {
		for i := range n {
			records = append(records, record(fmt.Sprintf("k%03d", i), value))
		}
		return records
	}
	write("gone", many(20, "1")...)                                               // becomes an empty batch
	write("tail", record("first", "1"), record("k001", "2"), record("k002", "2")) // loses its last records
	write("gone too", many(30, "3")...)                                           // becomes empty
	write("head", record("k003", "4"), record("mid", "1"), record("k004", "4"))   // loses its first and last records
	write("empty", many(40, "5")...)                                              // loses most of its records
	write("late", many(35, "-")...)                                               // tombstones, which compaction also removes
	write("tick", record("tick", "1"))

	want := func(from int64) (want []string) {
		for _, s := range []string{last["first"], last["mid"], last["k035"], last["k036"], last["k037"], last["k038"], last["k039"]} {
			var offset int64
			fmt.Sscan(s, &offset)
			if offset >= from {
				want = append(want, s)
			}
		}
		return want
	}
	end := next - 1 // end of all records before the ticks; each tick may roll a segment
	poll.Holds(t, "all is compacted", func() bool {
		write("tick", record("tick", "1"))
		_, got := readAll(t, c, topic, 0, 0, end)
		return slices.Equal(got, want(0))
	})
	for from := range end {
		if start, got := readAll(t, c, topic, 0, from, end); start != from || !slices.Equal(got, want(from)) {
			t.Errorf("from %d: got %d, %q, want %q", from, start, got, want(from))
		}
		// Fetch one batch at a time, as if the next batch never fits into the response.
		var got []string
		r := c.cursor(topic, 0, from, 1, nil)
		for r.next < end {
			r.bytes = 1
			if err := r.advance(within(t), end, readWait, func(r Record) error { got = append(got, show(r)); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want(from)) {
			t.Errorf("batch by batch from %d: got %q, want %q", from, got, want(from))
		}
		one, found, err := c.ReadOne(within(t), topic, 0, from)
		there := slices.Contains(want(0), show(one))
		if err != nil || found != there {
			t.Errorf("at %d: got %s, %v, %v", from, show(one), found, err)
		}
	}

	t.Run("cut", func(t *testing.T) {
		topic := kafkabrokertest.Topic(t, b, "cut", 1, map[string]string{"segment.ms": "1", "retention.ms": "1"})
		var o Offsets
		poll.Holds(t, "the log is cut", func() bool {
			r := record("a", "1")
			r.Timestamp = time.Now()
			put(t, c, topic, 0, r)
			var err error
			o, err = c.Offsets(within(t), topic)
			return err == nil && o.Start[0] > 2
		})
		start, err := c.Read(within(t), topic, 0, 1, o.End[0], func(Record) error { return nil })
		if err != nil || start < o.Start[0] {
			t.Errorf("got start %d, %v, want %d or more", start, err, o.Start[0])
		}
		if _, found, err := c.ReadOne(within(t), topic, 0, 1); err != nil || found {
			t.Errorf("got %v, %v", found, err)
		}
	})
}

// TestReadOverControlBatches verifies that a read skips control batches, which occupy offsets but
// contain no data records.
func TestReadOverControlBatches(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	ctx := within(t)
	topic := kafkabrokertest.Topic(t, b, "control", 1, nil)
	put(t, c, topic, 0, record("a", "1"))
	id := "control-" + topic
	p, err := c.InitProducerID(ctx, id, NoProducer)
	if err != nil {
		t.Fatal(err)
	}
	added, err := c.kafka.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
		TransactionalID: id, ProducerID: int(p.ID), ProducerEpoch: int(p.Epoch),
		Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}},
	})
	if err != nil || added.Topics[topic][0].Error != nil {
		t.Fatal(added, err)
	}
	committed, err := c.kafka.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: id, ProducerID: int(p.ID), ProducerEpoch: int(p.Epoch), Committed: true})
	if err != nil || committed.Error != nil {
		t.Fatal(committed, err)
	}
	poll.Holds(t, "the marker is written", func() bool {
		o, err := c.Offsets(ctx, topic)
		return err == nil && o.End[0] == 2
	})
	if _, got := readAll(t, c, topic, 0, 0, 2); !slices.Equal(got, []string{"0 a=1"}) {
		t.Errorf("got %q", got)
	}
	if _, got := readAll(t, c, topic, 0, 1, 2); got != nil {
		t.Errorf("got %q", got)
	}
	put(t, c, topic, 0, record("a", "2"))
	if _, got := readAll(t, c, topic, 0, 1, 3); !slices.Equal(got, []string{"2 a=2"}) {
		t.Errorf("got %q", got)
	}
}
