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
	return New(Config{Workers: 4, MaxInFlight: 1000, MaxBehind: 1000, BaseDelay: 10 * time.Millisecond, MaxDelay: time.Second})
}

// recorder is a handler that keeps each key with its completion.
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

// finishAll finishes so many keys, as they are handed out.
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

// start runs the queue and, at the end of the test, its drain.
func start(t *testing.T, q *Queue, h Handler) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx, h) }()
	t.Cleanup(func() { cancel(); <-done })
	return cancel
}

func TestManyKeysAwaitTheirCompletionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		for n := range 1000 {
			q.Add(key(n))
		}
		synctest.Wait()
		if got := r.handed(); got != 1000 {
			t.Errorf("%d keys were handed out with 4 workers, want all 1000", got)
		}
		if got := q.InFlight(); got != 1000 {
			t.Errorf("in flight %d, want 1000", got)
		}
		for n := range 1000 {
			r.finish(key(n), Result{})
		}
	})
}

func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 4, MaxInFlight: 10, MaxBehind: 10, BaseDelay: 1, MaxDelay: 1}), &recorder{}
		start(t, q, r.handle)
		for n := range 20 {
			q.Add(key(n))
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
		q.Add(key(1)) // handle panics if it comes now
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

func TestAgainComesAtOnceAndForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		for range 5 {
			synctest.Wait()
			r.finish(key(1), Result{Err: errors.New("bus down")})
			time.Sleep(time.Minute) // of the bubble's clock
		}
		for n, result := range []Result{{Again: true}, {Err: errors.New("bus down")}, {}} {
			synctest.Wait()
			before, handed := time.Now(), r.handed()
			r.finish(key(1), result)
			time.Sleep(15 * time.Millisecond) // what a first failure waits at most
			synctest.Wait()
			if got := r.handed() - handed; n < 2 && got != 1 {
				t.Fatalf("after result %d handed out %d times within %s, want once", n, got, time.Since(before))
			}
		}
	})
}

func TestFailuresComeBackForEverWithGrowingBoundedPauses(t *testing.T) {
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

func TestDrainHandsOutWhatIsQueuedAndAwaitsCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: 1, MaxBehind: 1, BaseDelay: 1, MaxDelay: 1}), &recorder{}
		start(t, q, r.handle)
		for n := range 3 {
			q.Add(key(n))
		}
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		q.Add(key(99)) // refused
		for n := range 3 {
			select {
			case err := <-drained:
				t.Fatalf("drained (%v) with %d of 3 keys completed", err, n)
			default:
			}
			r.finish(key(n), Result{})
			synctest.Wait()
		}
		if err := <-drained; err != nil || r.handed() != 3 {
			t.Errorf("drained with %v after %d keys, want nil after 3", err, r.handed())
		}
	})
}

func TestDrainTakesFurtherSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		r.finish(key(1), Result{Again: true})
		synctest.Wait()
		if got := r.handed(); got != 2 {
			t.Fatalf("handed out %d times, want a second step", got)
		}
		r.finish(key(1), Result{})
		if err := <-drained; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestDrainHandsOutWhatIsInBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: 10, MaxBehind: 10, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		synctest.Wait()
		if got := q.Delayed(); got != 1 {
			t.Fatalf("%d keys are in back-off, want 1", got)
		}
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		if got := r.handed(); got != 2 {
			t.Fatalf("handed out %d times, want again for the drain", got)
		}
		r.finish(key(1), Result{})
		if err := <-drained; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryNowDoesNotWaitForTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: 10, MaxBehind: 10, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		synctest.Wait()
		q.RetryNow()
		synctest.Wait()
		if got := r.handed(); got != 2 || q.Delayed() != 0 {
			t.Errorf("handed out %d times with %d in back-off, want twice and none", got, q.Delayed())
		}
		r.finish(key(1), Result{})
	})
}

func TestNothingIsHandedOutInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 2, MaxInFlight: 10, MaxBehind: 10, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		q.Pause(except())
		q.Pause(except())
		r.finish(key(1), Result{Err: errors.New("bus down")})
		for n := range 5 {
			q.Add(key(n + 2))
		}
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if got := r.handed(); got != 1 || q.Delayed() != 6 {
			t.Errorf("handed out %d times in a pause with %d kept, want no more than the 1 before it, and 6", got, q.Delayed())
		}
		q.Resume()
		synctest.Wait()
		if got := r.handed(); got != 7 {
			t.Errorf("handed out %d times after it, want all 7", got)
		}
		q.Resume()
		for n := range 6 {
			r.finish(key(n+1), Result{})
		}
	})
}

// except is for Pause.
func except(keys ...event.Key) func(event.Key) bool {
	return func(k event.Key) bool { return slices.Contains(keys, k) }
}

// TestSomeAreHandedOutInAPause also if they were parked before.
func TestSomeAreHandedOutInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Pause(except())
		for n := range 20 { // more than there are workers
			q.Add(key(n))
		}
		synctest.Wait()
		q.Pause(except(key(7), key(30)))
		q.Add(key(7))
		q.Add(key(30))
		synctest.Wait()
		if got := r.handed(); got != 2 || q.Delayed() != 19 {
			t.Errorf("handed out %d times with %d kept, want 2 and 19", got, q.Delayed())
		}
		r.finish(key(7), Result{})
		r.finish(key(30), Result{})
		q.Resume()
		synctest.Wait()
		if got := r.handed(); got != 2+19 || q.Delayed() != 0 {
			t.Errorf("handed out %d times with %d kept after the pause, want 21 and 0", got, q.Delayed())
		}
		for n := range 20 {
			if n != 7 {
				r.finish(key(n), Result{})
			}
		}
	})
}

func TestDrainEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Pause(except())
		q.Add(key(1))
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		if err := <-drained; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestRunEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		stop := start(t, q, r.handle)
		q.Pause(except())
		q.Add(key(1))
		synctest.Wait()
		stop() // start's cleanup waits for Run
		synctest.Wait()
		if got := r.handed(); got != 0 {
			t.Errorf("handed out %d times, want none", got)
		}
	})
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		stop := start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Drain(ctx); !errors.Is(err, ErrDrainDeadline) {
			t.Errorf("got %v, want %v", err, ErrDrainDeadline)
		}
		stop()
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
