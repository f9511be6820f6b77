package forward

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// inferred is the tombstone of a consistent read that found no object. It has no last state, so only the
// bus has one.
var inferred = event.Tombstone{UID: "A", Confirmed: true, Contradicts: live("A", "10").Position, Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}

// blockedHistory blocks each read until it receives from let or its context ends.
type blockedHistory struct {
	let     chan struct{}
	reading atomic.Int32
}

var _ History = (*blockedHistory)(nil)

func (h *blockedHistory) At(ctx context.Context, _ event.Key, _ uint64) (publish.Stored, error) {
	h.reading.Add(1)
	defer h.reading.Add(-1)
	select {
	case <-h.let:
		return publish.Stored{}, nil
	case <-ctx.Done():
		return publish.Stored{}, ctx.Err()
	}
}

// historyFunc is a fake History.
type historyFunc func(ctx context.Context) (*event.Object, error)

var _ History = historyFunc(nil)

func (h historyFunc) At(ctx context.Context, _ event.Key, _ uint64) (publish.Stored, error) {
	o, err := h(ctx)
	return publish.Stored{Object: o}, err
}

// anotherForwarder returns a forwarder for which every key has the view of the bench's key. Its bus
// acknowledges every publish and counts it in published.
func (b *bench) anotherForwarder(h History, published *atomic.Int32) *Forwarder {
	f := b.forwarder()
	f.History = h
	f.Ledger = ledgerOf(b.acked)
	f.Informers = quiet{b}
	f.Publish = func(_ context.Context, _ *event.Message, done func(uint64, error)) {
		published.Add(1)
		done(8, nil)
	}
	return f
}

// ledgerOf is a Ledger that returns the same entry for every key and ignores all updates.
type ledgerOf event.Acked

var _ Ledger = ledgerOf{}

func (l ledgerOf) Get(event.Key) event.Acked                            { return event.Acked(l) }
func (ledgerOf) IsAttempt(event.Key, event.Acked) bool                  { return false }
func (ledgerOf) Replace(event.Key, event.Acked, event.Acked) bool       { return true }
func (ledgerOf) Settle(event.Key, event.Acked, ledger.Interest, string) {}
func (ledgerOf) Acknowledge(event.Key, event.Acked, *event.Object, ledger.Interest) bool {
	return true
}
func (ledgerOf) Unanswered(event.Key, event.Acked, event.Acked, *event.Change, ledger.Interest) {}
func (ledgerOf) Conflict(_ event.Change, _, _ event.Acked, _ bool)                              {}
func (ledgerOf) Adopt(_ event.Key, _, _ event.Acked)                                            {}

// quiet is a bench that many keys can use at once, because Lookup changes nothing in it.
type quiet struct{ *bench }

var _ Informers = quiet{}

func (q quiet) Lookup(k event.Key) event.View {
	v := q.view
	v.Acked = q.acked
	if v.Live != nil {
		o := *v.Live
		o.Name, v.Live = k.Name, &o
	}
	return v
}

func keyOf(n int) event.Key {
	k := key
	k.Name = fmt.Sprint("web-", n)
	return k
}

// TestReadsAreLimited verifies the limit of maxReads concurrent reads. At the limit, an update is
// published without its previous state, and a delete waits. When a read completes, another one can
// start.
func TestReadsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var published, done atomic.Int32
		count := func(_ bool, err error) {
			if err == nil {
				done.Add(1)
			}
		}
		h := &blockedHistory{let: make(chan struct{})}
		updates := (&bench{view: view(object("A", "11")), acked: live("A", "10")}).anotherForwarder(h, &published)
		deletes := (&bench{view: view(nil, inferred), acked: live("A", "10")}).anotherForwarder(h, &published)
		deletes.reads = updates.reads

		want := func(when string, reading, ended int32) {
			t.Helper()
			synctest.Wait()
			if h.reading.Load() != reading || done.Load() != ended || published.Load() != ended {
				t.Fatalf("%s: %d reads in progress, %d done, %d published; want %d reads, and %d done and published",
					when, h.reading.Load(), done.Load(), published.Load(), reading, ended)
			}
		}
		for n := range maxReads {
			updates.Sync(ctx, keyOf(n), count)
		}
		want("all reads are taken", maxReads, 0)

		var returned atomic.Int32 // number of Sync calls that have returned to their workers
		go func() { updates.Sync(ctx, keyOf(maxReads), count); returned.Add(1) }()
		want("an update more", maxReads, 1)

		go func() { deletes.Sync(ctx, keyOf(maxReads+1), count); returned.Add(1) }()
		want("a delete more", maxReads, 1)
		if got := returned.Load(); got != 2 {
			t.Errorf("%d of 2 workers are free during the reads", got)
		}

		h.let <- struct{}{}
		want("a read has ended", maxReads, 2) // and the read for the delete has begun

		close(h.let)
		want("all have ended", 0, maxReads+2)
		if n := len(updates.reads); n != 0 {
			t.Errorf("%d reads are still counted", n)
		}
		updates.Sync(ctx, keyOf(0), count)
		want("one more", 0, maxReads+3)
	})
}

// TestWaitForAReadEndsWithItsContext verifies that the wait for a free read ends with the context.
func TestWaitForAReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var published atomic.Int32
		f := (&bench{view: view(nil, inferred), acked: live("A", "10")}).anotherForwarder(&blockedHistory{}, &published)
		for range maxReads {
			f.reads <- struct{}{}
		}
		ended := make(chan error, 1)
		go f.Sync(ctx, key, func(_ bool, err error) { ended <- err })
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// TestOptionalReadHasADeadline verifies that an update does not wait for a bus that does not
// respond. A change that needs the last state waits.
func TestOptionalReadHasADeadline(t *testing.T) {
	for name, c := range map[string]struct {
		view event.View
		want bool
	}{
		"an update":                   {view(object("A", "11")), true},
		"a delete":                    {view(nil, inferred), false},
		"whether there is any update": {view(withDigest(t, sent("A", "11", `"spec":1`))), false},
	} {
		t.Run(name, func(t *testing.T) {
			var published atomic.Int32
			asked := make(chan bool, 1)
			f := (&bench{view: c.view, acked: live("A", "10")}).anotherForwarder(historyFunc(func(ctx context.Context) (*event.Object, error) {
				_, has := ctx.Deadline()
				asked <- has
				return nil, nil
			}), &published)
			if _, err := syncOnce(t, f); err != nil {
				t.Fatal(err)
			}
			if len(asked) != 1 {
				t.Fatal("the last state was not read")
			}
			if got := <-asked; got != c.want {
				t.Errorf("has a deadline: %v, want %v", got, c.want)
			}
		})
	}
}
