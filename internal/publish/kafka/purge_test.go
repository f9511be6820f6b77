package kafka

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestPurge leaves a tombstone where that is wanted, and nothing to load; a recreation
// in between stays.
func TestPurge(t *testing.T) {
	for _, tombstones := range []bool{false, true} {
		t.Run(fmt.Sprint("tombstones ", tombstones), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.Tombstones = tombstones
			b := w.open()
			want := w.publishSome(b, "web-", 2)
			gone, stays := w.message("web-0", 1, 0).Key, w.message("web-1", 1, 0).Key
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
			if isTombstone := end.Value == nil && string(end.Key) == event.PartitionKey(w.opts.Cluster, gone); isTombstone != tombstones {
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

// TestAPurgeWhileAnEventIsOnItsWay does nothing: a tombstone after the event would take
// that away.
func TestAPurgeWhileAnEventIsOnItsWay(t *testing.T) {
	var silent atomic.Bool
	var topic string
	w := hooked(t, func(to string) error {
		if to == topic && silent.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	topic, w.opts.Tombstones = w.opts.Topic, true
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only a failing test gets there
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
		if r.Value == nil {
			t.Errorf("there is a tombstone at offset %d", r.Offset)
		}
	}
}

// TestAPurgeBeforeTheFirstLoad: what was found at the start is not what there is now.
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
