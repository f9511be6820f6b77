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
)

// inferred is a delete of which only the bus has the last state.
var inferred = event.Tombstone{UID: "A", Cause: event.CauseReconcile, Observed: time.Unix(100, 0)}

// blockedHistory answers a read of the last state when it is let, or told to end.
type blockedHistory struct {
	let     chan struct{}
	reading atomic.Int32
}

var _ History = (*blockedHistory)(nil)

func (h *blockedHistory) LastState(ctx context.Context, _ event.Key, _ uint64) (*event.Object, error) {
	h.reading.Add(1)
	defer h.reading.Add(-1)
	select {
	case <-h.let:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// historyFunc is a History of one function.
type historyFunc func(ctx context.Context) (*event.Object, error)

var _ History = historyFunc(nil)

func (h historyFunc) LastState(ctx context.Context, _ event.Key, _ uint64) (*event.Object, error) {
	return h(ctx)
}

// anotherForwarder has what is known of the bench's key for every key, and its own answers
// to publishes.
func (b *bench) anotherForwarder(h History, published *atomic.Int32) *Forwarder {
	f := b.forwarder()
	f.History = h
	f.Checkpoint = checkpointOf(b.acked)
	f.Informers = quiet{b}
	f.Publish = func(_ context.Context, _ *event.Message, done func(Outcome)) {
		published.Add(1)
		done(Outcome{Position: 8})
	}
	return f
}

// checkpointOf has the same for every key, whatever it is told.
type checkpointOf event.Acked

var _ Checkpoint = checkpointOf{}

func (c checkpointOf) Get(event.Key) event.Acked  { return event.Acked(c) }
func (c checkpointOf) Put(event.Key, event.Acked) {}

// quiet is for many keys at once.
type quiet struct{ *bench }

var _ Informers = quiet{}

func (q quiet) Lookup(k event.Key) event.View {
	v := q.view
	if v.Live != nil {
		o := *v.Live
		o.Name, v.Live = k.Name, &o
	}
	return v
}
func (quiet) Settle(event.Key, event.Acked, string)              {}
func (quiet) Acknowledged(event.Key, event.Acked, *event.Object) {}

func keyOf(n int) event.Key {
	k := key
	k.Name = fmt.Sprint("web-", n)
	return k
}

// TestReadsOfTheBusAreFew: an update says less rather than wait for one, a delete waits for
// its turn, and each read that ends makes room for another.
func TestReadsOfTheBusAreFew(t *testing.T) {
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
				t.Fatalf("%s: %d are being read, %d done, %d published; want %d, and %d done and published",
					when, h.reading.Load(), done.Load(), published.Load(), reading, ended)
			}
		}
		for n := range maxReads {
			updates.Sync(ctx, keyOf(n), count)
		}
		want("all reads are taken", maxReads, 0)

		go updates.Sync(ctx, keyOf(maxReads), count) // does not return if it waits
		want("an update more", maxReads, 1)

		go deletes.Sync(ctx, keyOf(maxReads+1), count)
		want("a delete more", maxReads, 1)

		h.let <- struct{}{}
		want("a read has ended", maxReads, 2) // and the delete's has begun

		close(h.let)
		want("all have ended", 0, maxReads+2)
		if n := len(updates.reads); n != 0 {
			t.Errorf("%d reads are held to be under way", n)
		}
		updates.Sync(ctx, keyOf(0), count)
		want("one more", 0, maxReads+3)
	})
}

// TestAWaitForAReadEnds with the context.
func TestAWaitForAReadEnds(t *testing.T) {
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
			t.Errorf("got %v, want that it was cancelled", err)
		}
	})
}

// TestAReadThatIsNotNeededHasADeadline: an update must not wait for a bus that does not
// answer; what cannot be made without the last state must.
func TestAReadThatIsNotNeededHasADeadline(t *testing.T) {
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
				t.Errorf("it has a deadline: %v, want %v", got, c.want)
			}
		})
	}
}
