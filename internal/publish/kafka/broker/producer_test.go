package broker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/childprocess"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

func TestProduce(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "produce", 2, nil)
	for i, codec := range []recordbatch.Compression{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		offset, err := c.Produce(within(t), topic, 1, batch(t, codec, NoProducer, recordbatch.NoSequence, record("a", "1"), record("a", "-")))
		if err != nil {
			t.Fatal(codec, err)
		}
		if want := int64(2 * i); offset != want {
			t.Errorf("%s: got offset %d, want %d", codec, offset, want)
		}
	}
	start, got := readAll(t, c, topic, 1, 3, 8)
	if want := []string{"3 a=-", "4 a=1", "5 a=-", "6 a=1", "7 a=-"}; start != 3 || !slices.Equal(got, want) {
		t.Errorf("got %d, %q, want %q", start, got, want)
	}
}

func TestProducerIsFenced(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	ctx := within(t)
	topic := kafkabrokertest.Topic(t, b, "fenced", 1, nil)
	id := "fenced-" + topic

	old, err := c.InitProducerID(ctx, id, NoProducer)
	if err != nil {
		t.Fatal(err)
	}
	first := batch(t, recordbatch.None, old, 0, record("a", "1"), record("b", "1"))
	if offset, err := c.Produce(ctx, topic, 0, first); err != nil || offset != 0 {
		t.Fatal(offset, err)
	}
	if offset, err := c.Produce(ctx, topic, 0, first); err != nil || offset != 0 {
		t.Errorf("the same again: got %d, %v, want the first offset", offset, err)
	}
	_, err = c.Produce(ctx, topic, 0, batch(t, recordbatch.None, old, 5, record("a", "2")))
	wantError(t, err, failure.OutOfOrder, topic, "partition 0")

	taken, err := c.InitProducerID(ctx, id, NoProducer)
	if err != nil {
		t.Fatal(err)
	}
	if taken.ID != old.ID || taken.Epoch != old.Epoch+1 {
		t.Errorf("got %+v after %+v, want the next epoch", taken, old)
	}
	// The broker accepts the old epoch until the new epoch has written to the partition.
	if offset := putAs(t, c, topic, 0, old, 2, record("a", "3")); offset != 2 {
		t.Errorf("got offset %d, want 2", offset)
	}
	putAs(t, c, topic, 0, taken, 0, record("marker", "x"))
	_, err = c.Produce(ctx, topic, 0, batch(t, recordbatch.None, old, 3, record("a", "4")))
	wantError(t, err, failure.Fenced)
	_, err = c.InitProducerID(ctx, id, old)
	wantError(t, err, failure.Fenced, id)

	renewed, err := c.InitProducerID(ctx, id, taken)
	if err != nil {
		t.Fatal(err)
	}
	if renewed.ID != taken.ID || renewed.Epoch != taken.Epoch+1 {
		t.Errorf("got %+v after %+v, want the next epoch", renewed, taken)
	}
	again, err := c.InitProducerID(ctx, id, taken) // a client repeats the request after a lost response
	if err != nil || again != renewed {
		t.Errorf("got %+v, %v, want %+v once more", again, err, renewed)
	}
	if _, got := readAll(t, c, topic, 0, 0, 4); !slices.Equal(got, []string{"0 a=1", "1 b=1", "2 a=3", "3 marker=x"}) {
		t.Errorf("got %q", got)
	}
}

func TestProduceTooLarge(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "large", 1, map[string]string{"max.message.bytes": "1000"})
	_, err := c.Produce(within(t), topic, 0, batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", string(make([]byte, 2000)))))
	wantError(t, err, failure.TooLarge)
}

func TestProduceWhereThereIsNothing(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "one", 1, nil)
	encoded := batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1"))
	_, err := c.Produce(within(t), topic, 7, encoded)
	wantError(t, err, failure.Retry, "partition 7")
	_, err = c.Produce(within(t), "no-"+topic, 0, encoded)
	wantError(t, err, failure.Retry, "no-"+topic)
}

// TestUnreachableBrokerIsNamed verifies that errors name an unreachable broker. Without metadata, kafka-go
// itself returns "topic not found" for every topic.
func TestUnreachableBrokerIsNamed(t *testing.T) {
	port, err := childprocess.HoldPort(childprocess.ReusePort) // no process listens on this port
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	addr := port.Address()
	c := newClient(t, addr)
	encoded := batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1"))

	_, err = c.Produce(within(t), "topic", 0, encoded)
	wantError(t, err, failure.Retry, addr, "connection refused")
	// kafka-go's own client returns the same error.
	_, err = c.kafka.RawProduce(within(t), &kafka.RawProduceRequest{Topic: "topic", RawRecords: protocol.RawRecordSet{Reader: &recordSet{batch: encoded}}})
	wantError(t, err, failure.Retry, addr, "connection refused")
	_, err = c.Topic(within(t), "topic")
	wantError(t, err, failure.Retry, addr, "connection refused")
	if errors.Is(err, ErrNoTopic) {
		t.Errorf("got %v, although nobody knows whether the topic exists", err)
	}
	_, _, err = c.Ensure(within(t), advice.TopicConfig{Name: "topic", Partitions: 1, CleanupPolicy: "compact"})
	wantError(t, err, failure.Retry, addr, "connection refused")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.InitProducerID(ctx, "id", NoProducer)
	wantError(t, err, failure.Retry)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end in it", err)
	}
}

func TestCloseEndsRequests(t *testing.T) {
	b := kafkabrokertest.Shared(t)
	c := newClient(t, b.Addr())
	topic := kafkabrokertest.Topic(t, b, "close", 1, nil)
	put(t, c, topic, 0, record("a", "1"))
	first, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.Follow(within(t), topic, 0, 0, func(Record) error { close(first); return nil })
	}()
	<-first
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	_, err := c.Produce(within(t), topic, 0, batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1")))
	wantError(t, err, failure.Never, "closed")
	var code kafka.Error
	if errors.As(err, &code) {
		t.Errorf("a broker has answered: %v", err)
	}
}
