package workqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

func key(n int) event.Key {
	return event.Key{Resource: "pods", Namespace: "default", Name: fmt.Sprint(n)}
}

func testQueue() *Queue {
	return New(Config{Workers: 4, MaxInFlight: Limit{Keys: 1000}, MaxLowPriorityInFlight: Limit{Keys: 1000}, BaseDelay: 10 * time.Millisecond, MaxDelay: time.Second})
}

// recorder is a handler that records each key with its completion.
type recorder struct {
	mu    sync.Mutex
	order []event.Key
	open  map[event.Key]func(Result)
}

func (r *recorder) handle(_ context.Context, k event.Key, done func(Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[event.Key]func(Result){}
	}
	if _, ok := r.open[k]; ok {
		panic("key handed out twice at a time")
	}
	r.order = append(r.order, k)
	r.open[k] = done
}

func (r *recorder) finish(k event.Key, result Result) {
	r.mu.Lock()
	done := r.open[k]
	delete(r.open, k)
	r.mu.Unlock()
	done(result)
}

// finishAll completes keys as they are handed out, until the given number is completed.
func (r *recorder) finishAll(t *testing.T, keys int) {
	t.Helper()
	for keys > 0 {
		synctest.Wait()
		r.mu.Lock()
		open := slices.Collect(maps.Keys(r.open))
		r.mu.Unlock()
		if len(open) == 0 {
			t.Fatalf("%d keys are not handed out", keys)
		}
		for _, k := range open {
			r.finish(k, Result{})
		}
		keys -= len(open)
	}
}

func (r *recorder) handed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// start runs the queue until stop is called or the test ends. The test ends only after Run has
// returned.
func start(t *testing.T, q *Queue, h Handler) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx, h) }()
	t.Cleanup(func() { cancel(); <-done })
	return cancel
}

// endedContext is canceled, but has not called its AfterFunc functions yet.
type endedContext struct{ context.Context }

func (endedContext) Err() error { return context.Canceled }

// TestRunShutsTheQueueDown verifies that Run leaves no goroutine, even if the workers notice the end of
// the context before the function that shuts the queue down. synctest reports such a goroutine.
func TestRunShutsTheQueueDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		testQueue().Run(endedContext{t.Context()}, (&recorder{}).handle)
	})
}

func TestManyKeysAwaitTheirCompletionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		for n := range 1000 {
			q.Add(change(n))
		}
		synctest.Wait()
		if got := r.handed(); got != 1000 {
			t.Errorf("%d keys were handed out with 4 workers, want all 1000", got)
		}
		if got := q.InFlight(); got != 1000 {
			t.Errorf("in flight %d, want 1000", got)
		}
		for n := range 1000 {
			r.finish(change(n), Result{})
		}
	})
}

func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 4, MaxInFlight: Limit{Keys: 10}, MaxLowPriorityInFlight: Limit{Keys: 10}, BaseDelay: 1, MaxDelay: 1}), &recorder{}
		start(t, q, r.handle)
		for n := range 20 {
			q.Add(change(n))
		}
		synctest.Wait()
		if got := r.handed(); got != 10 {
			t.Fatalf("%d keys were handed out, want 10", got)
		}
		for n := range 20 {
			r.finish(r.order[n], Result{})
			synctest.Wait()
		}
		if got := r.handed(); got != 20 {
			t.Errorf("%d keys were handed out in the end, want 20", got)
		}
	})
}

func TestAKeyAddedWhileInFlightComesAfterItsCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		q.Add(key(1)) // handle panics if it receives this key now
		q.Add(key(1))
		synctest.Wait()
		if got := r.handed(); got != 1 {
			t.Fatalf("handed out %d times before the completion, want once", got)
		}
		r.finish(key(1), Result{})
		synctest.Wait()
		if got := r.handed(); got != 2 {
			t.Fatalf("handed out %d times, want twice", got)
		}
		r.finish(key(1), Result{})
	})
}

func TestAgainRequeuesAtOnceAndForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		for range 5 {
			synctest.Wait()
			r.finish(key(1), Result{Err: errors.New("bus down")})
			time.Sleep(time.Minute) // on the synctest clock
		}
		for n, result := range []Result{{Again: true}, {Err: errors.New("bus down")}, {}} {
			synctest.Wait()
			before, handed := time.Now(), r.handed()
			r.finish(key(1), result)
			time.Sleep(15 * time.Millisecond) // maximum delay after a first failure
			synctest.Wait()
			if got := r.handed() - handed; n < 2 && got != 1 {
				t.Fatalf("after result %d handed out %d times within %s, want once", n, got, time.Since(before))
			}
		}
	})
}

func TestFailuresRetryForeverWithBoundedBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := make(chan time.Time)
		q := testQueue()
		start(t, q, func(ctx context.Context, _ event.Key, done func(Result)) {
			select {
			case attempts <- time.Now():
				done(Result{Err: errors.New("bus down")})
			case <-ctx.Done():
				done(Result{})
			}
		})
		q.Add(key(1))
		last := <-attempts
		expected := 10 * time.Millisecond
		for n := range 40 {
			now := <-attempts
			pause := now.Sub(last)
			if pause < expected/2 || pause > expected*3/2 {
				t.Errorf("pause %d is %s, want %s give or take a half", n, pause, expected)
			}
			last, expected = now, min(2*expected, time.Second)
		}
	})
}

func TestBackoffHasJitter(t *testing.T) {
	b := newBackoff(time.Hour, time.Hour)
	seen := map[time.Duration]bool{}
	for n := range 20 {
		seen[b.When(unique.Make(key(n)))] = true
	}
	if len(seen) < 15 {
		t.Errorf("20 keys that failed together got %d different pauses", len(seen))
	}
}

func TestRetryNowDoesNotWaitForTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 10}, MaxLowPriorityInFlight: Limit{Keys: 10}, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		synctest.Wait()
		q.RetryNow()
		synctest.Wait()
		if got := r.handed(); got != 2 || q.Delayed() != 0 {
			t.Errorf("handed out %d times with %d in backoff, want twice and none", got, q.Delayed())
		}
		if _, failures := q.Find(key(1)); failures != 0 {
			t.Errorf("%d failures still count for the next backoff", failures)
		}
		r.finish(key(1), Result{})
	})
}

func TestRunEndsWithItsContextAndAwaitsCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); q.Run(ctx, r.handle) }()
		q.Add(key(1))
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("Run returned with a key in flight")
		default:
		}
		r.finish(key(1), Result{})
		<-ended
	})
}
