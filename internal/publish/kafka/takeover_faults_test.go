package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// hooked returns writers that call hook before they send a batch. If hook returns an error, the
// batch fails with it.
func hooked(t *testing.T, hook func(topic string) error) *writers {
	t.Helper()
	w := newWriters(t, 1)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if err := hook(topic); err != nil {
			return 0, err
		}
		return client.Produce(ctx, topic, partition, batch)
	}
	return w
}

// TestATakeOverThatFails verifies the takeover after a failed one that has written with its epoch.
// The next takeover must not write with the same epoch, because its records would count as
// duplicates.
func TestATakeOverThatFails(t *testing.T) {
	var denied atomic.Bool
	var attempts atomic.Int32
	var topic string
	w := hooked(t, func(to string) error {
		if to != topic && denied.Load() {
			attempts.Add(1)
			return kafkago.TopicAuthorizationFailed
		}
		return nil
	})
	topic = w.opts.Topic
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	s, _ := b.current()
	if err := s.recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	denied.Store(true)
	s.end(errRenew)
	await(t, "a takeover has failed", func() error {
		if attempts.Load() == 0 || b.Ready() == nil {
			return errors.New("not yet")
		}
		return nil
	})
	denied.Store(false)
	await(t, "ready", b.Ready)
	now, _ := b.current()
	if _, is, err := b.stored.Holds(t.Context(), takeover.Keyed{Key: now.markerKey(topic, 0), Entry: now.topics[topic].markers[0]}); !is || err != nil {
		t.Errorf("the session's marker is not where it was acknowledged: %v", err)
	}
	w.wantLoaded(b, want)
	w.wantLoaded(b, want)
}

// TestAnEventInFlightMayBeStored verifies the error of an event in flight when the session ends
// because a record of the checkpoint topic was denied. The denied record is certainly not stored,
// but the event may be.
func TestAnEventInFlightMayBeStored(t *testing.T) {
	var denied atomic.Bool
	var once sync.Once
	stored := make(chan struct{})
	w := newWriters(t, 1)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	var second *event.Message
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if topic != w.opts.Topic && denied.CompareAndSwap(true, false) { // once, so that the next session works
			<-stored
			return 0, kafkago.SASLAuthenticationFailed
		}
		offset, err := client.Produce(ctx, topic, partition, batch)
		if err == nil && topic == w.opts.Topic && bytes.Contains(batch, []byte(second.ID)) {
			once.Do(func() {
				close(stored)
				<-ctx.Done() // the response is lost
				offset, err = 0, ctx.Err()
			})
		}
		return offset, err
	}
	w.opts.Compression = recordbatch.None
	second = w.message("second", 1, 0)
	b := w.open()
	denied.Store(true)
	first := w.mustPublish(b, w.message("first", 1, 0))
	_, err = w.publish(b, second)
	if err == nil || errors.Is(err, publish.ErrNotSent) || failure.KindOf(err) != failure.Denied {
		t.Errorf("the error is %v, want the reason of the session's end, and not %v", err, publish.ErrNotSent)
	}
	var at uint64
	await(t, "published", func() (err error) { // the bus may not know yet that the session has ended
		at, err = w.publish(b, second)
		return err
	})
	if at != first+1 { // already stored
		t.Errorf("the event is at %d, want %d", at, first+1)
	}
}

// TestALoadEndsWithItsSession verifies that Load ends with its session. After the session has
// ended, the records that Load waits for are never stored.
func TestALoadEndsWithItsSession(t *testing.T) {
	var silent atomic.Bool
	var topic string
	w := hooked(t, func(to string) error {
		if to != topic && silent.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	topic = w.opts.Topic
	b := w.open()
	w.load(b)
	s, _ := b.current()
	if err := s.recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	w.publishSome(b, "web-", 3)
	loaded := make(chan error, 1)
	go func() { loaded <- b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }) }()
	s.end(errRenew)
	if err := <-loaded; err == nil {
		t.Error("loaded what is not recorded")
	}
	silent.Store(false)
}

// TestTheTopicOfAResourceIsDeleted verifies that no entry of a deleted topic is trusted.
func TestTheTopicOfAResourceIsDeleted(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprint("running ", running), func(t *testing.T) {
			w := newWriters(t, 2)
			prefix := w.opts.Topic
			w.opts.Topic = prefix + ".{group}.{resource}"
			b := w.open()
			want := map[event.Key]uint64{}
			for _, k := range []event.Key{
				{Resource: "pods", Namespace: "default", Name: "a"}, {Resource: "pods", Namespace: "default", Name: "b"},
				{Group: "apps", Resource: "deployments", Namespace: "default", Name: "a"},
			} {
				await(t, "published", func() (err error) {
					want[k], err = w.publish(b, w.messageOf(k, 1, 0))
					return err
				})
			}
			if !running {
				crash(b)
			}
			w.deleteTopic(prefix + ".core.pods")
			for k := range want {
				if k.Resource == "pods" {
					delete(want, k)
				}
			}
			if !running {
				b = w.open()
			}
			await(t, "only what is there is loaded", func() error {
				if err := b.Ready(); err != nil {
					return err
				}
				got := map[event.Key]bool{}
				err := b.Load(t.Context(), func(k event.Key, a event.Acked) error {
					if a != (event.Acked{}) {
						got[k] = true
					} else {
						delete(got, k)
					}
					return nil
				})
				if err == nil && len(got) != len(want) {
					err = fmt.Errorf("loaded %v", got)
				}
				return err
			})
			k := event.Key{Resource: "pods", Namespace: "default", Name: "a"}
			await(t, "published anew", func() (err error) {
				want[k], err = w.publish(b, w.messageOf(k, 1, 0))
				return err
			})
			crash(b)
			w.wantLoaded(w.open(), want)
		})
	}
}

// TestWhatAnotherLeftInANewTopic verifies that a bus finds existing events when it opens a topic,
// and does not publish them a second time.
func TestWhatAnotherLeftInANewTopic(t *testing.T) {
	w := newWriters(t, 1)
	prefix := w.opts.Topic
	w.opts.Topic = prefix + ".{resource}"
	leader := w.open()
	k := event.Key{Resource: "pods", Namespace: "default", Name: "a"}
	other := newWriters(t, 1) // stands for a stale writer, which nothing fences in a new topic
	other.opts.Topic, other.opts.Cluster, other.opts.CheckpointTopic = w.opts.Topic, w.opts.Cluster, prefix+".other"
	other.opts.TransactionalID = prefix + ".other"
	stale := other.open()
	var at uint64
	await(t, "published", func() (err error) {
		at, err = other.publish(stale, other.messageOf(k, 1, 0))
		return err
	})
	await(t, "known", func() error {
		got, err := w.publish(leader, w.messageOf(k, 1, 0))
		if err == nil && got != at {
			t.Errorf("published again at %d, want %d", got, at)
		}
		return err
	})
	w.opts.Topic = prefix + ".pods"
	w.wantNoRepeat(1)
}

// TestATopicGoesWhileItIsTakenOver verifies that a topic that is deleted between the lookup and the
// marker is recreated. The takeover does not retry the marker forever.
func TestATopicGoesWhileItIsTakenOver(t *testing.T) {
	for _, topic := range []string{"events", "checkpoint"} {
		t.Run(topic, func(t *testing.T) {
			var gone sync.Once
			var deleted string
			var w *writers
			w = hooked(t, func(to string) error {
				if to == deleted {
					gone.Do(func() { w.deleteTopic(to) })
				}
				return nil
			})
			w.opts.AckTimeout = time.Hour
			b := w.open()
			want := w.publishSome(b, "web-", 3)
			crash(b)
			deleted = w.opts.Topic
			if topic == "checkpoint" {
				deleted = DefaultCheckpointTopic(w.opts.Topic)
			} else {
				want = map[event.Key]uint64{}
			}
			w.wantLoaded(w.open(), want)
		})
	}
}

// TestTheSpreadIsFoundAgain verifies that objects stay in their partitions if the record of the
// spread is lost and the topic has more partitions than before.
func TestTheSpreadIsFoundAgain(t *testing.T) {
	w := newWriters(t, 2)
	b := w.open()
	want := w.publishSome(b, "web-", 20)
	crash(b)
	w.addPartitions(8)
	w.deleteTopic(DefaultCheckpointTopic(w.opts.Topic))
	b = w.open()
	w.wantLoaded(b, want)
	for k, position := range want {
		if got := w.mustPublish(b, w.messageOf(k, 2, position)); got>>48 != position>>48 {
			t.Errorf("%s has moved from partition %d to %d", k, position>>48, got>>48)
		}
	}
}
