package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

const refresh = time.Hour

// run runs a reconciler until the end of the test.
func run(t *testing.T, c *bench, source Source, cluster Cluster) *Reconciler {
	t.Helper()
	r := NewReconciler(c.Checkpoint, source, cluster, refresh, slog.New(slog.DiscardHandler))
	start(t, r)
	return r
}

func start(t *testing.T, r *Reconciler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
}

func TestReconcilerComparesOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := newBench(), &recorder{}
		c.Put(key("a"), at("1"))
		r := run(t, c, nil, rec.cluster())
		if got := rec.take(); got != "" {
			t.Errorf("without a request: got %q", got)
		}
		r.CompareResource(pods)
		r.CompareResource(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		time.Sleep(refresh / 2) // on the synctest clock
		if got := rec.take(); got != "" {
			t.Errorf("later, without a request: got %q", got)
		}
	})
}

// TestReconcilerComparesKeys verifies that a due key does not cause a comparison of its whole
// resource, unless the resource is due too or the comparison of the key fails.
func TestReconcilerComparesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := newBench(), &recorder{}
		c.Put(key("a"), at("1"))
		c.Put(key("b"), at("2"))
		r := NewReconciler(c.Checkpoint, nil, rec.cluster(), refresh, slog.New(slog.DiscardHandler))
		r.CompareKey(key("a"))
		r.CompareKey(key("a"))
		r.CompareKey(key("c"))
		start(t, r)
		if got, want := rec.take(), "pods:[a.1 c.]"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		r.CompareResource(pods)
		r.CompareKey(key("a"))
		synctest.Wait()
		if got := rec.take(); got != "pods:2" && got != "pods:2 pods:[a.1]" {
			t.Errorf("got %q, want the comparison", got)
		}
		rec.failWith(errors.New("no answer"))
		r.CompareKey(key("b"))
		synctest.Wait()
		if got, want := rec.take(), "pods:[b.2]"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		rec.failWith(nil)
		time.Sleep(2 * retryDelay) // on the synctest clock
		if got, want := rec.take(), "pods:2"; got != want {
			t.Errorf("after a failure: got %q, want %q", got, want)
		}
	})
}

// TestReconcilerFailing verifies that Failing reports a resource, with the time of the first
// failure, until a comparison of the whole resource succeeds.
func TestReconcilerFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, first, second := &recorder{}, errors.New("no answer"), errors.New("denied")
		r := run(t, newBench(), nil, rec.cluster())
		began := time.Now()
		want := func(want map[schema.GroupResource]Failure) {
			t.Helper()
			synctest.Wait()
			if got := r.Failing(); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		rec.failWith(first)
		r.CompareResource(pods)
		want(map[schema.GroupResource]Failure{pods: {first, began}})
		rec.failWith(second)
		time.Sleep(retryDelay) // on the synctest clock
		want(map[schema.GroupResource]Failure{pods: {second, began}})
		rec.failWith(nil)
		r.CompareKey(key("a"))
		want(map[schema.GroupResource]Failure{pods: {second, began}})
		r.CompareResource(pods)
		want(map[schema.GroupResource]Failure{})
	})
}

// TestReconcilerRequestBeforeRun verifies that Run handles requests from before its start, because
// informers can sync before Run.
func TestReconcilerRequestBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		r := NewReconciler(newBench().Checkpoint, nil, rec.cluster(), refresh, slog.New(slog.DiscardHandler))
		r.CompareResource(pods)
		r.CompareResource(pods)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		if got, want := rec.take(), "pods:0"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReconcilerRequestDuringComparison verifies that one more comparison follows if requests arrive
// during a comparison, because they may be too late for it.
func TestReconcilerRequestDuringComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, release := &recorder{}, make(chan struct{})
		rec.fail = func(schema.GroupResource) error { <-release; return nil }
		r := run(t, newBench(), nil, rec.cluster())
		r.CompareResource(pods)
		synctest.Wait()
		for range 5 {
			r.CompareResource(pods)
		}
		close(release)
		synctest.Wait()
		if got, want := rec.take(), "pods:0 pods:0"; got != want {
			t.Errorf("got %q, want %q: one more comparison for many requests", got, want)
		}
	})
}

// TestReconcilerRetries verifies that the reconciler retries only the resources that failed, after
// growing delays.
func TestReconcilerRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		var works atomic.Bool
		rec.fail = func(gr schema.GroupResource) error {
			if gr == pods && !works.Load() {
				return errors.New("no answer")
			}
			return nil
		}
		r := run(t, newBench(), nil, rec.cluster())
		r.CompareResource(pods)
		r.CompareResource(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:0"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		pause := retryDelay
		for range 8 {
			time.Sleep(pause - time.Millisecond)
			synctest.Wait()
			if got := rec.take(); got != "" {
				t.Fatalf("got %q before the delay of %s had passed", got, pause)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if got, want := rec.take(), "pods:0"; got != want {
				t.Fatalf("after %s: got %q, want %q", pause, got, want)
			}
			pause = min(2*pause, maxRetryDelay)
		}
		works.Store(true)
		time.Sleep(pause)
		synctest.Wait()
		if got, want := rec.take(), "pods:0"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		time.Sleep(2 * maxRetryDelay)
		synctest.Wait()
		if got := rec.take(); got != "" {
			t.Errorf("got %q after the success", got)
		}
	})
}

// TestReconcilerRetriesAfterAKey verifies that the comparison of a key does not cancel the retry for
// its resource.
func TestReconcilerRetriesAfterAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		rec.failWith(errors.New("no answer"))
		r := run(t, newBench(), nil, rec.cluster())
		r.CompareResource(pods)
		synctest.Wait()
		rec.failWith(nil)
		r.CompareKey(key("a"))
		synctest.Wait()
		if got, want := rec.take(), "pods:0 pods:[a.]"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		time.Sleep(retryDelay)
		synctest.Wait()
		if got, want := rec.take(), "pods:0"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReconcilerRequestRetriesFailure verifies that a request retries a failed comparison
// immediately. If the comparison succeeds, no retry follows after the delay.
func TestReconcilerRequestRetriesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		var works atomic.Bool
		rec.fail = func(schema.GroupResource) error {
			if works.Load() {
				return nil
			}
			return errors.New("no answer")
		}
		r := run(t, newBench(), nil, rec.cluster())
		r.CompareResource(pods)
		synctest.Wait()
		r.CompareResource(nodes)
		synctest.Wait()
		if got, want := rec.take(), "nodes:0 pods:0"; got != want {
			t.Fatalf("got %q, want %q: the failed resource waits for its delay", got, want)
		}
		works.Store(true)
		r.CompareResource(pods)
		r.CompareResource(nodes)
		synctest.Wait()
		rec.take()
		time.Sleep(2 * maxRetryDelay)
		synctest.Wait()
		if got := rec.take(); got != "" {
			t.Errorf("got %q after both have succeeded", got)
		}
	})
}

// TestReconcilerRefresh verifies that a refresh finds the events that the bus lost or gained, and
// compares every resource that has entries.
func TestReconcilerRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := newBench(), &recorder{}
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

// TestReconcilerRefreshFails verifies that a failed refresh changes nothing and is retried after
// retryDelay.
func TestReconcilerRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := newBench(), &recorder{}
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
		time.Sleep(retryDelay) // long before the next refresh
		synctest.Wait()
		if got := rec.take(); got != "all" || content(c) != "" {
			t.Errorf("got %q, the checkpoint has %q; want all and nothing", got, content(c))
		}
	})
}

// TestReconcilerWithoutASource verifies that the reconciler compares the known entries if the bus
// cannot be read.
func TestReconcilerWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, rec := newBench(), &recorder{}
		c.Put(key("a"), at("1"))
		run(t, c, nil, rec.cluster())
		time.Sleep(refresh)
		synctest.Wait()
		if got, want := rec.take(), "all pods:1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReconcilerEndsWithItsContext verifies that Run ends with its context, even during a
// comparison.
func TestReconcilerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		r := NewReconciler(newBench().Checkpoint, nil, clusterFuncs{reconcile: func(ctx context.Context, _ schema.GroupResource, _ int) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		}}, refresh, slog.New(slog.DiscardHandler))
		r.CompareResource(pods)
		r.CompareResource(nodes)
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-ended
		if calls != 1 {
			t.Errorf("%d comparisons, want none after the end", calls)
		}
	})
}
