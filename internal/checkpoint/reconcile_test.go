package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

const refresh = time.Hour

// run runs a reconciler until the end of the test.
func run(t *testing.T, c *Checkpoint, source Source, cluster Cluster) *Reconciler {
	t.Helper()
	r := NewReconciler(c, source, cluster, refresh, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return r
}

func TestReconcilerComparesWhatItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := New(), &recorder{}
		c.Put(key("a"), at("1"))
		r := run(t, c, nil, rec.cluster())
		if got := rec.take(); got != "" {
			t.Errorf("unasked: %q", got)
		}
		r.Ask(pods)
		r.Ask(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		time.Sleep(refresh / 2) // of the test's clock
		if got := rec.take(); got != "" {
			t.Errorf("again, unasked: %q", got)
		}
	})
}

// TestReconcilerAskedBeforeItRuns: informers may sync first.
func TestReconcilerAskedBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		r := NewReconciler(New(), nil, rec.cluster(), refresh, slog.New(slog.DiscardHandler))
		r.Ask(pods)
		r.Ask(pods)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		if got, want := rec.take(), "pods:0"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReconcilerAskedWhileItCompares: what was asked for during a comparison may
// have come too late for it.
func TestReconcilerAskedWhileItCompares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, release := &recorder{}, make(chan struct{})
		rec.fail = func(schema.GroupResource) error { <-release; return nil }
		r := run(t, New(), nil, rec.cluster())
		r.Ask(pods)
		synctest.Wait()
		for range 5 {
			r.Ask(pods)
		}
		close(release)
		synctest.Wait()
		if got, want := rec.take(), "pods:0 pods:0"; got != want {
			t.Errorf("got %q, want %q: once more, however often it was asked for", got, want)
		}
	})
}

// TestReconcilerTriesAgain after growing pauses, and only what failed.
func TestReconcilerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		var works atomic.Bool
		rec.fail = func(gr schema.GroupResource) error {
			if gr == pods && !works.Load() {
				return errors.New("no answer")
			}
			return nil
		}
		r := run(t, New(), nil, rec.cluster())
		r.Ask(pods)
		r.Ask(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:0"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		pause := retryAfter
		for range 8 {
			time.Sleep(pause - time.Millisecond)
			synctest.Wait()
			if got := rec.take(); got != "" {
				t.Fatalf("got %q before the pause of %s was over", got, pause)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got, want := rec.take(), "pods:0"; got != want {
				t.Fatalf("after %s: got %q, want %q", pause, got, want)
			}
			pause = min(2*pause, retryLongest)
		}
		works.Store(true)
		time.Sleep(pause)
		synctest.Wait()
		if got, want := rec.take(), "pods:0"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		time.Sleep(2 * retryLongest)
		synctest.Wait()
		if got := rec.take(); got != "" {
			t.Errorf("got %q after it has succeeded", got)
		}
	})
}

// TestReconcilerAskedForWhatFails: being asked is a reason to believe that it may
// work now; and once it has, the pause that is left is of no more use.
func TestReconcilerAskedForWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		var works atomic.Bool
		rec.fail = func(schema.GroupResource) error {
			if works.Load() {
				return nil
			}
			return errors.New("no answer")
		}
		r := run(t, New(), nil, rec.cluster())
		r.Ask(pods)
		synctest.Wait()
		r.Ask(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:0"; got != want {
			t.Fatalf("got %q, want %q: the one that failed waits for its pause", got, want)
		}
		works.Store(true)
		r.Ask(pods)
		r.Ask(nodes)
		synctest.Wait()
		rec.take()
		time.Sleep(2 * retryLongest)
		synctest.Wait()
		if got := rec.take(); got != "" {
			t.Errorf("got %q, though both have succeeded", got)
		}
	})
}

// TestReconcilerRefresh: what the bus has lost or gained is found, for every
// resource of which it has anything.
func TestReconcilerRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := New(), &recorder{}
		c.Put(key("lost"), at("1"))
		bus := map[event.Key]event.Acked{key("a"): at("1"), key("b"): at("1"), {Resource: "nodes", Name: "n"}: at("1")}
		run(t, c, holds(bus), rec.cluster())
		for range 3 {
			time.Sleep(refresh)
			synctest.Wait()
			if got, want := rec.take(), "all nodes:1 pods:2"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if got, want := content(c), "a.1 b.1"; got != want {
			t.Errorf("the checkpoint has %q, want %q", got, want)
		}
	})
}

// TestReconcilerRefreshFails: a bus that does not answer proves nothing.
func TestReconcilerRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := New(), &recorder{}
		c.Put(key("a"), at("1"))
		var works atomic.Bool
		source := sourceFunc(func(ctx context.Context, yield func(event.Key, event.Acked) error) error {
			if works.Load() {
				return holds(nil)(ctx, yield)
			}
			return errors.New("bus down")
		})
		run(t, c, source, rec.cluster())
		time.Sleep(refresh)
		synctest.Wait()
		if got := rec.take(); got != "" || content(c) != "a.1" {
			t.Errorf("got %q, the checkpoint has %q; want nothing and a.1", got, content(c))
		}
		works.Store(true)
		time.Sleep(retryAfter) // not only after the next refresh
		synctest.Wait()
		if got := rec.take(); got != "all" || content(c) != "" {
			t.Errorf("got %q, the checkpoint has %q; want all and nothing", got, content(c))
		}
	})
}

// TestReconcilerWithoutASource: on a bus that cannot be read what is known of it is
// compared.
func TestReconcilerWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := New(), &recorder{}
		c.Put(key("a"), at("1"))
		run(t, c, nil, rec.cluster())
		time.Sleep(refresh)
		synctest.Wait()
		if got, want := rec.take(), "all pods:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReconcilerEndsWithItsContext, also in the midst of a comparison.
func TestReconcilerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		r := NewReconciler(New(), nil, clusterFuncs{reconcile: func(ctx context.Context, _ schema.GroupResource, _ int) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		}}, refresh, slog.New(slog.DiscardHandler))
		r.Ask(pods)
		r.Ask(nodes)
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-ended
		if calls != 1 {
			t.Errorf("%d comparisons, want no other after the end", calls)
		}
	})
}
