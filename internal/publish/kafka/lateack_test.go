package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
)

// TestAnEventIsAcknowledgedDuringALoad verifies that an event is stored once if its publish has timed
// out, and the brokers acknowledge it while a load reads the checkpoint topic. The caller does not
// learn of the acknowledgement. In an earlier version, the load yielded the object's earlier state at the
// position of the event, so the next publish of the event stored it again.
func TestAnEventIsAcknowledgedDuringALoad(t *testing.T) {
	cluster, w := newFakeWriters(t)
	w.opts.Partitions = 1
	w.opts.AckTimeout = time.Second
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	var hung atomic.Bool // the leader hangs until answer is closed
	answer := make(chan struct{})
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if topic == w.opts.Topic && hung.Load() {
			select {
			case <-answer:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return client.Produce(ctx, topic, partition, batch)
	}
	b := w.open()
	created := w.message("web", 1, 0)
	w.wantLoaded(b, map[event.Key]uint64{created.Key: w.mustPublish(b, created)}) // later loads read the topic
	s, _ := b.current()
	first, _ := w.acked(b)
	hung.Store(true)
	updated := w.message("web", 2, first[created.Key].Position)
	if _, err := w.publish(b, updated); !errors.Is(err, errTimeout) {
		t.Fatalf("got %v, want %v", err, errTimeout)
	}

	held, release := holdFetches(t, cluster, DefaultCheckpointTopic(w.opts.Topic), 2) // a read of one record asks for 1 byte
	var loaded map[event.Key]event.Acked
	ended := make(chan error, 1)
	go func() {
		var err error
		loaded, err = w.acked(b)
		ended <- err
	}()
	<-held
	close(answer)
	id := index.Of([]byte(event.PartitionKey(w.opts.Cluster, updated.Key)))
	await(t, "acknowledged", func() error {
		if s.index.Position(id) == first[created.Key].Position {
			return errors.New("not yet")
		}
		return nil
	})
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got, want := loaded[created.Key], first[created.Key]; got != want {
		t.Errorf("loaded %+v, want %+v", got, want)
	}
	updated.Expected = loaded[updated.Key].Position
	w.mustPublish(b, updated)
	w.wantNoRepeat(2)
}
