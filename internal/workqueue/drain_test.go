package workqueue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	kubequeue "k8s.io/client-go/util/workqueue"
)

func TestDrainHandsOutQueuedKeysAndAwaitsCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: 1, MaxDelay: 1}), &recorder{}
		start(t, q, r.handle)
		for n := range 3 {
			q.Add(key(n))
		}
		synctest.Wait()
		drained := drain(t, q)
		synctest.Wait()
		q.Add(key(99)) // rejected
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

func TestDrainRunsFurtherSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		drained := drain(t, q)
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

// whileCompleting calls a function while a handled key is being completed.
type whileCompleting struct {
	kubequeue.TypedRateLimitingInterface[item]
	do func()
}

func (w whileCompleting) ShuttingDown() bool {
	defer w.do()
	return w.TypedRateLimitingInterface.ShuttingDown()
}

func (w whileCompleting) Forget(key item) {
	w.do()
	w.TypedRateLimitingInterface.Forget(key)
}

// TestDrainDuringTheCompletionOfAStep verifies that a drain runs the next step of a key that is being
// completed when the drain begins.
func TestDrainDuringTheCompletionOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		var drained <-chan error
		q.queue = whileCompleting{q.queue, sync.OnceFunc(func() {
			drained = drain(t, q)
			synctest.Wait()
		})}
		start(t, q, r.handle)
		q.Add(key(1))
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

func TestDrainHandsOutKeysInBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 10}, MaxLowPriorityInFlight: Limit{Keys: 10}, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		synctest.Wait()
		if got := q.Delayed(); got != 1 {
			t.Fatalf("%d keys are in backoff, want 1", got)
		}
		drained := drain(t, q)
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

// TestDrainEndsAtItsDeadline verifies that no key is handed out after the deadline, and that Run then
// returns.
func TestDrainEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := limited(1, 1, 1), &recorder{}
		start(t, q, r.handle)
		for n := range 3 {
			q.Add(key(n))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Drain(ctx); !errors.Is(err, ErrDrainDeadline) {
			t.Errorf("got %v, want %v", err, ErrDrainDeadline)
		}
		r.finish(key(0), Result{})
		<-q.finished
		if got := r.handed(); got != 1 || q.Len() != 2 {
			t.Errorf("handed out %d times with %d keys left, want 1 and 2", got, q.Len())
		}
	})
}

// TestDrainAfterItsDeadline verifies that a drain returns an error if its context and Run have both ended
// with keys left.
func TestDrainAfterItsDeadline(t *testing.T) {
	for range 50 { // select takes either of two ready channels
		synctest.Test(t, func(t *testing.T) {
			q, r := limited(1, 1, 1), &recorder{}
			stop := start(t, q, r.handle)
			for n := range 3 {
				q.Add(key(n))
			}
			synctest.Wait()
			stop()
			synctest.Wait()
			r.finish(key(0), Result{})
			<-q.finished
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := q.Drain(ctx); !errors.Is(err, ErrDrainDeadline) || q.Len() != 2 {
				t.Fatalf("got %v with %d keys left, want %v with 2", err, q.Len(), ErrDrainDeadline)
			}
		})
	}
}

// TestDrainHandsOutLowPriorityKeysAboveTheLimit verifies that a drain hands out all low-priority
// keys, even while their limit is reached. client-go's queue treats a queue that currently hands
// out no key as empty, and then ends the workers.
func TestDrainHandsOutLowPriorityKeysAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 1000
		q, r := limited(4, 20, 8), &recorder{}
		start(t, q, r.handle)
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		synctest.Wait()
		drained := drain(t, q)
		r.finishAll(t, keys)
		if err := <-drained; err != nil || r.handed() != keys {
			t.Errorf("drained with %v after %d keys, want nil after %d", err, r.handed(), keys)
		}
	})
}

// beforeDone calls a function before client-go's queue learns that a key is done.
type beforeDone struct {
	kubequeue.TypedRateLimitingInterface[item]
	do func()
}

func (b beforeDone) Done(key item) {
	b.do()
	b.TypedRateLimitingInterface.Done(key)
}

// TestDrainHandsOutChangesInFlight verifies that a drain hands out a key again if the key changed
// in flight. In earlier versions, the workers ended when no key was queued, or when the key was
// released before client-go's queue had queued it again. Then the next start had to publish the
// later state.
func TestDrainHandsOutChangesInFlight(t *testing.T) {
	for name, before := range map[string]func(){
		"at any time":                   func() {},
		"while every worker is waiting": synctest.Wait,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, r := testQueue(), &recorder{}
				q.queue = beforeDone{q.queue, before}
				start(t, q, r.handle)
				q.Add(key(1))
				synctest.Wait()
				q.Add(key(1))
				drained := drain(t, q)
				synctest.Wait()
				r.finish(key(1), Result{})
				synctest.Wait()
				if got := r.handed(); got != 2 {
					t.Fatalf("handed out %d times, want again with its later state", got)
				}
				r.finish(key(1), Result{})
				if err := <-drained; err != nil {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// TestDrainHandsOutAKeyThatHasJustFailed verifies that a drain hands out a failed key again if the key's
// backoff begins before the drain, but client-go's queue learns that the handler has ended only afterward.
func TestDrainHandsOutAKeyThatHasJustFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 2, MaxInFlight: Limit{Keys: 10}, MaxLowPriorityInFlight: Limit{Keys: 10}, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		var drained <-chan error
		first := true
		q.queue = beforeDone{q.queue, func() {
			if first {
				first = false
				if at, _ := q.Find(key(1)); at != BackOff {
					t.Errorf("the key is %q, want %q", at, BackOff)
				}
				drained = drain(t, q)
				synctest.Wait()
			}
		}}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		r.finish(key(1), Result{Err: errors.New("bus down")})
		synctest.Wait()
		if got := r.handed(); got != 2 {
			t.Fatalf("handed out %d times, want again for the drain; %d keys are left", got, q.Len())
		}
		r.finish(key(1), Result{})
		if err := <-drained; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// drain drains a queue without blocking, and returns a channel for the result.
func drain(t *testing.T, q *Queue) <-chan error {
	drained := make(chan error, 1)
	go func() { drained <- q.Drain(t.Context()) }()
	return drained
}

// TestDrainWaitsForAnAdd verifies that a drain shuts client-go's queue down only after an Add that began
// before the drain.
func TestDrainWaitsForAnAdd(t *testing.T) {
	q := testQueue()
	handle := unique.Make(key(1))
	q.priorities.add(handle)
	q.priorities.drain()
	q.Resume()
	select {
	case <-q.priorities.emptied:
		t.Fatal("the drain does not wait for the key")
	default:
	}
	q.queue.Add(handle)
	<-q.priorities.emptied
}

// TestDrainEndsWithAKeyInBackOffAndInTheBacklog verifies that a drain ends if a key in backoff was added
// again with low priority while many low-priority keys were waiting.
func TestDrainEndsWithAKeyInBackOffAndInTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 2}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.AddLowPriority(key(0))
		synctest.Wait()
		r.finish(key(0), Result{Err: errors.New("bus down")})
		for n := range maxStaged + 1 {
			q.AddLowPriority(key(n + 1))
			synctest.Wait() // the first key is handed out
		}
		q.AddLowPriority(key(0))
		drained := drain(t, q)
		r.finishAll(t, maxStaged+2)
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// TestDrainWaitsForAnAddOfAKeyInFlight is TestDrainWaitsForAnAdd for a key that a handler holds.
func TestDrainWaitsForAnAddOfAKeyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		handle := unique.Make(key(1))
		q.priorities.add(handle)
		drained := drain(t, q)
		synctest.Wait()
		q.queue.Add(handle)
		r.finish(key(1), Result{})
		synctest.Wait()
		if got := r.handed(); got != 2 {
			t.Fatalf("handed out %d times, want again with its later state", got)
		}
		r.finish(key(1), Result{})
		if err := <-drained; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// beforeGet calls a function after a key is granted, and before client-go's queue hands it out.
type beforeGet struct {
	kubequeue.TypedRateLimitingInterface[item]
	do func()
}

func (b beforeGet) Get() (item, bool) {
	b.do()
	return b.TypedRateLimitingInterface.Get()
}

// TestDrainAfterAnAddDuringTheHandOut verifies that a drain ends if a key was added while it was handed
// out. client-go's queue ignores such an Add, and does not queue the key again.
func TestDrainAfterAnAddDuringTheHandOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		q.queue = beforeGet{q.queue, func() {
			q.Add(key(1))
			q.priorities.drain()
			q.Resume()
		}}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		if at, _ := q.Find(key(1)); at != InFlight {
			t.Errorf("the key is %q, want %q", at, InFlight)
		}
		select {
		case <-q.priorities.emptied:
		default:
			t.Error("the drain waits for a key that client-go's queue does not queue")
		}
		r.finish(key(1), Result{})
		if err := q.Drain(t.Context()); err != nil || r.handed() != 1 {
			t.Errorf("drained with %v after %d keys, want nil after 1", err, r.handed())
		}
	})
}
