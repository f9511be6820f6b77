package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// wantTombstones fails the test unless the record after each delete is its tombstone, and there
// are n tombstones.
func (w *writers) wantTombstones(n int) {
	w.t.Helper()
	deletes := map[string]*kgo.Record{}
	at := func(p int32, offset int64) string { return fmt.Sprint(p, "/", offset) }
	for _, r := range readTopic(w.t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		deleted := deletes[at(r.Partition, r.Offset-1)]
		if is := isTombstone(r); is != (deleted != nil) || is && string(r.Key) != string(deleted.Key) {
			w.t.Errorf("%s at %d:%d: a tombstone is %t, after a delete %v", r.Key, r.Partition, r.Offset, is, deleted)
		}
		if get, err := attributesOf(recordOf(r)); err == nil && event.Type(get("type")).IsRemoval() {
			deletes[at(r.Partition, r.Offset)] = r
		}
	}
	if len(deletes) != n {
		w.t.Errorf("got %d deletes, want %d", len(deletes), n)
	}
}

// TestATombstoneFollowsEachDelete verifies that the record after each delete is its tombstone,
// whether or not the next writer finds the deletes in the checkpoint topic.
func TestATombstoneFollowsEachDelete(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprint("recorded ", recorded), func(t *testing.T) {
			w := newWriters(t, 1)
			gate := newCheckpointGate(t, w)
			b := w.open()
			live := w.publishSome(b, "web-", 20)
			w.flushed(b)
			if !recorded {
				gate.close(map[int]int{0: 0})
			}
			want := map[event.Key]event.Acked{}
			var mu sync.Mutex
			done := make(chan error, len(live))
			for k, position := range live {
				typ := event.Deleted
				if position%2 == 0 {
					typ = event.Deselected
				}
				m := w.removal(typ, k, position)
				b.Publish(t.Context(), m, func(position uint64, err error) {
					mu.Lock()
					defer mu.Unlock()
					want[k] = event.Acked{UID: m.Acked.UID, ResourceVersion: m.Acked.ResourceVersion, Deleted: true, Deselected: typ == event.Deselected, Position: position}
					done <- err
				})
			}
			for range live {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			w.wantTombstones(len(live))
			for range 3 { // what the takeover finds, and then what it recorded
				crash(b)
				gate.open()
				b = w.open()
				all, err := w.acked(b)
				for k, a := range all {
					a.Time = 0
					all[k] = a
				}
				if err != nil || !maps.Equal(all, want) {
					t.Fatalf("loaded %v, %v, want %v", all, err, want)
				}
			}
			for k, a := range want {
				w.mustPublish(b, w.messageOf(k, 9, a.Position))
			}
			w.wantTombstones(len(live))
		})
	}
}

// TestADeleteIsCompacted verifies that the tombstone of a delete identifies the delete, to this
// writer and to the next one. Compaction removes a delete before its tombstone.
func TestADeleteIsCompacted(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{Properties: map[string]string{"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "50"}})
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprint("recorded ", recorded), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.Broker.Addrs = []string{broker.Addr()}
			err := broker.CreateTopic(t.Context(), w.opts.Topic, 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001"})
			if err != nil {
				t.Fatal(err)
			}
			gate := newCheckpointGate(t, w)
			b := w.open()
			created := w.message("web", 1, 0)
			k, last := created.Key, w.mustPublish(b, created)
			w.flushed(b)
			if !recorded {
				gate.close(map[int]int{0: 0})
			}
			deleted := w.mustPublish(b, w.removal(event.Deleted, k, last))
			tick := w.message("tick", 1, 0)
			n, position := 1, w.mustPublish(b, tick)
			await(t, "the delete is compacted", func() error {
				n++
				position = w.mustPublish(b, w.messageOf(tick.Key, n, position)) // rolls a segment
				for _, r := range readTopic(t, broker.Addr(), w.opts.Topic) {
					if r.Offset == publish.Offset(deleted) {
						return errors.New("the delete is still in the topic")
					}
				}
				return nil
			})
			var conflict *publish.ConflictError
			if _, err := w.publish(b, w.removal(event.Deleted, k, last)); !errors.As(err, &conflict) || !conflict.Bus.Deleted || conflict.Bus.Position != deleted {
				t.Errorf("published again: got %v, want a conflict with the delete at %d", err, deleted)
			}
			for range 3 {
				crash(b)
				gate.open()
				b = w.open()
				all, err := w.acked(b)
				if a := all[k]; err != nil || !a.Deleted || a.UID != created.Acked.UID || a.Position != deleted {
					t.Errorf("loaded %+v, %v, want the delete at %d", a, err, deleted)
				}
			}
			w.mustPublish(b, w.messageOf(k, 9, deleted))
		})
	}
}

// TestPurge verifies that a purge removes the checkpoint entry of a delete. If the topic is
// compacted and the delete has no tombstone yet, the purge also writes one. An object with a later
// event stays.
func TestPurge(t *testing.T) {
	for _, test := range []struct {
		atDelete  bool
		policy    string
		tombstone bool
	}{{true, "compact", false}, {false, "compact", true}, {false, "delete", false}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.Tombstones, w.opts.CleanupPolicy = test.atDelete, test.policy
			b := w.open()
			want := w.publishSome(b, "web-", 2)
			gone, stays := w.message("web-0", 1, 0).Key, w.message("web-1", 1, 0).Key
			want[gone] = w.mustPublish(b, w.deletion(gone, want[gone]))
			was := want[stays]
			want[stays] = w.mustPublish(b, w.messageOf(stays, 2, was))
			for k, position := range map[event.Key]uint64{gone: want[gone], stays: was} {
				if err := b.Purge(t.Context(), k, position); err != nil {
					t.Fatal(err)
				}
			}
			delete(want, gone)
			w.load(b)
			w.wantLoaded(b, want)
			last := readTopic(t, w.opts.Broker.Addrs[0], w.opts.Topic)
			end := last[len(last)-1]
			if isTombstone := end.Value == nil && string(end.Key) == event.PartitionKey(w.opts.Cluster, gone); isTombstone != test.tombstone {
				t.Errorf("the last record is %s with %d bytes", end.Key, len(end.Value))
			}
			crash(b)
			next := w.open()
			w.wantLoaded(next, want)
			want[gone] = w.mustPublish(next, w.messageOf(gone, 3, 0))
			w.wantLoaded(next, want)
		})
	}
}

// TestAPurgeWhileAnEventIsOnItsWay verifies that a purge does nothing while the object has an event
// in flight. A tombstone after the event would remove the event.
func TestAPurgeWhileAnEventIsOnItsWay(t *testing.T) {
	var silent atomic.Bool
	var topic string
	w := hooked(t, func(to string) error {
		if to == topic && silent.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	topic, w.opts.Tombstones = w.opts.Topic, false
	b := w.open()
	want := w.publishSome(b, "web-", 2)
	k := w.message("web-0", 1, 0).Key
	silent.Store(true)
	type result struct {
		position uint64
		err      error
	}
	done := make(chan result, 1)
	b.Publish(t.Context(), w.messageOf(k, 2, want[k]), func(position uint64, err error) { done <- result{position, err} })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := b.Purge(ctx, k, want[k]); err != nil {
		t.Error(err)
	}
	silent.Store(false)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	want[k] = r.position
	w.wantLoaded(b, want)
	w.wantNoRepeat(3)
	for _, r := range readTopic(t, w.opts.Broker.Addrs[0], topic) {
		if isTombstone(r) {
			t.Errorf("there is a tombstone at offset %d", r.Offset)
		}
	}
}

// TestAPurgeOfAPartitionThatIsStuck verifies that a purge times out if its partition does not
// respond, because the purges of other partitions wait for it. The object can be published once the
// partition responds.
func TestAPurgeOfAPartitionThatIsStuck(t *testing.T) {
	for _, behind := range []bool{false, true} { // whether the tombstone waits behind a batch, or is in one
		t.Run(fmt.Sprint("behind a batch ", behind), func(t *testing.T) {
			var stuck atomic.Bool
			var topic string
			tried := make(chan struct{}, 1)
			w := hooked(t, func(to string) error {
				if to == topic && stuck.Load() {
					select {
					case tried <- struct{}{}:
					default:
					}
					return io.ErrUnexpectedEOF
				}
				return nil
			})
			topic, w.opts.Tombstones, w.opts.AckTimeout = w.opts.Topic, false, 4*time.Second
			b := w.open()
			want := w.publishSome(b, "web-", 2)
			k := w.message("web-0", 1, 0).Key
			stuck.Store(true)
			if behind {
				b.Publish(t.Context(), w.message("ahead", 1, 0), func(uint64, error) {})
				<-tried
			}
			if err := b.Purge(t.Context(), k, want[k]); err == nil || t.Context().Err() != nil {
				t.Errorf("got %v, want an error", err)
			}
			stuck.Store(false)
			expected := want[k]
			await(t, "published", func() error {
				_, err := w.publish(b, w.messageOf(k, 2, expected))
				var conflict *publish.ConflictError
				if errors.As(err, &conflict) {
					expected = conflict.Bus.Position // the tombstone was stored in the end
				}
				return err
			})
			if !behind && expected != 0 || behind && expected != want[k] {
				t.Errorf("published upon %d", expected)
			}
		})
	}
}

// TestAPurgeBeforeTheFirstLoad verifies that the first load after a purge does not yield the purged
// object, although the takeover found it.
func TestAPurgeBeforeTheFirstLoad(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	want := w.publishSome(b, "web-", 2)
	crash(b)
	b = w.open()
	gone := w.message("web-0", 1, 0).Key
	if err := b.Purge(t.Context(), gone, want[gone]); err != nil {
		t.Fatal(err)
	}
	delete(want, gone)
	got := maps.Clone(want)
	if err := b.Load(t.Context(), func(k event.Key, a event.Acked) error { got[k] = a.Position; return nil }); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(got, func(_ event.Key, position uint64) bool { return position == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
}
