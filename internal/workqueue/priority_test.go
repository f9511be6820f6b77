package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

// handedOut returns the names of n keys in the order in which one worker receives them.
func handedOut(t *testing.T, q *Queue, n int, handle func(name string)) []string {
	t.Helper()
	var names []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q.Run(ctx, func(_ context.Context, k event.Key, done func(Result)) {
		names = append(names, k.Name)
		if handle != nil {
			handle(k.Name)
		}
		done(Result{})
		if len(names) == n {
			cancel()
		}
	})
	return names
}

func named(name string) event.Key { return event.Key{Resource: "pods", Name: name} }

func oneWorker() *Queue {
	return New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Second, MaxDelay: time.Second})
}

// TestChangesGoFirst verifies that a changed key is handed out first even if it was queued with low
// priority, and that each key is handed out once.
func TestChangesGoFirst(t *testing.T) {
	q := oneWorker()
	for _, name := range []string{"a", "b", "c", "d"} {
		q.AddLowPriority(named(name))
	}
	q.Add(named("x"))
	q.Add(named("c"))            // becomes a normal key
	q.AddLowPriority(named("x")) // stays a normal key
	q.AddLowPriority(named("a")) // is queued already
	if got := q.Len(); got != 5 {
		t.Errorf("%d wait, want 5", got)
	}
	if got, want := handedOut(t, q, 5, nil), []string{"x", "c", "a", "b", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLowPriorityStaysLowAfterAPause verifies that an outage during a first sync does not turn its
// keys into normal keys.
func TestLowPriorityStaysLowAfterAPause(t *testing.T) {
	const keys = 20
	for name, outage := range map[string]func(q *Queue){
		"a pause": func(q *Queue) {
			q.Pause(func(event.Key) bool { return false })
			for range keys {
				q.processNext(t.Context(), func(_ context.Context, k event.Key, _ func(Result)) { t.Errorf("%v is not parked", k) })
			}
			q.Resume()
		},
		"failures": func(q *Queue) {
			for range keys {
				next, _ := q.take()
				q.complete(next.key, Result{Err: context.Canceled})
			}
			q.RetryNow()
		},
		"a further step": func(q *Queue) {
			for range keys {
				next, _ := q.take()
				q.complete(next.key, Result{Again: true})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := New(Config{Workers: 1, MaxInFlight: Limit{Keys: keys}, MaxLowPriorityInFlight: Limit{Keys: keys}, BaseDelay: time.Hour, MaxDelay: time.Hour})
			for n := range keys {
				q.AddLowPriority(named(fmt.Sprint(n)))
			}
			outage(q)
			q.Add(named("live"))
			if got := handedOut(t, q, keys+1, nil); got[0] != "live" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestAChangeWhileAKeyIsHandled verifies that a key that changes while it is handled is handed out
// again before low-priority keys, even if it is added with low priority after the change.
func TestAChangeWhileAKeyIsHandled(t *testing.T) {
	q := oneWorker()
	for _, name := range []string{"a", "b", "c"} {
		q.AddLowPriority(named(name))
	}
	first := true
	got := handedOut(t, q, 4, func(name string) {
		if name == "a" && first {
			first = false
			q.Add(named("a"))
			q.AddLowPriority(named("a"))
		}
	})
	if want := []string{"a", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLowPriorityKeysMakeProgress verifies that low-priority keys are handed out even if changes
// never cease.
func TestLowPriorityKeysMakeProgress(t *testing.T) {
	q := oneWorker()
	q.AddLowPriority(named("first"))
	q.AddLowPriority(named("second"))
	q.Add(named("x0"))
	n := 0
	got := handedOut(t, q, 2*(maxStreak+1), func(name string) {
		if name[0] == 'x' {
			n++
			q.Add(named(fmt.Sprintf("x%d", n)))
		}
	})
	if slices.Index(got, "first") != maxStreak || slices.Index(got, "second") != 2*maxStreak+1 {
		t.Errorf("got %q", got)
	}
}

// complete completes a key without client-go's queue.
func complete(q *priorityQueue, key item) { q.completed(key, Result{}) }

// TestPriorityQueue verifies that every pushed key is popped once, even if keys change meanwhile.
func TestPriorityQueue(t *testing.T) {
	l := newPriorityQueue(Limit{Keys: 1}, Limit{Keys: 1}, 0)
	const keys = 5000
	want := map[string]int{}
	pop := func() {
		if _, ok := l.await(); !ok {
			t.Fatal("no key is granted")
		}
		popped := l.Pop()
		want[popped.Value().Name]--
		complete(l, popped)
	}
	for round := range 3 {
		for n := range keys {
			name := fmt.Sprint(n)
			k := unique.Make(named(name))
			l.expect(k, priority((n+round)%2))
			if l.keys[k].place != queued {
				l.Push(k)
				want[name]++
			}
			if n%3 == 0 {
				l.expect(k, normal)
			}
			if n%4 == 0 {
				pop()
			}
		}
	}
	for l.ready() {
		pop()
	}
	for name, n := range want {
		if n != 0 {
			t.Errorf("%s: pushed %d times more than popped", name, n)
		}
	}
	if len(l.keys) != 0 || l.all.keys.used != 0 {
		t.Errorf("%d keys are remembered, %d are held", len(l.keys), l.all.keys.used)
	}
	if l.lowFIFO.items != nil || len(l.flows.byID) != 0 {
		t.Error("an empty queue keeps memory")
	}
}

// TestAGrantedKeyIsTaken verifies that Pop returns a granted key even if another event reaches a
// limit between the grant and Pop. Otherwise, client-go's queue would wait forever.
func TestAGrantedKeyIsTaken(t *testing.T) {
	for _, as := range []priority{normal, low} {
		l := newPriorityQueue(Limit{Keys: 9, Bytes: 9}, Limit{Keys: 9, Bytes: 9}, 0)
		first, second := unique.Make(named("first")), unique.Make(named("second"))
		l.expect(first, normal)
		l.Push(first)
		l.await()
		l.Pop()
		l.expect(second, as)
		l.Push(second)
		if _, ok := l.await(); !ok {
			t.Fatal("no key is granted")
		}
		l.holdBytes(first, 10)
		if l.Len() == 0 || l.Pop() != second {
			t.Error("the key that was granted cannot be taken")
		}
		if l.ready() {
			t.Error("a third key can be granted, although the limit is reached")
		}
	}
}

// TestEachKeyWakesAWorker verifies that two keys that arrive at once wake two workers.
func TestEachKeyWakesAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue()
		defer q.queue.ShutDown()
		defer q.priorities.end()
		var taken atomic.Int32
		for range 2 {
			go func() {
				if _, ok := q.take(); ok {
					taken.Add(1)
				}
			}()
		}
		synctest.Wait()
		q.Add(key(1))
		q.Add(key(2))
		synctest.Wait()
		if n := taken.Load(); n != 2 {
			t.Errorf("%d workers took a key, want 2", n)
		}
	})
}

// TestAChangeInFlightKeepsItsPriority verifies that a key that changed in flight stays a normal key if it
// is also added with low priority before client-go's queue has queued it again.
func TestAChangeInFlightKeepsItsPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := limited(1, 1, 1), &recorder{}
		q.queue = beforeDone{q.queue, sync.OnceFunc(func() { q.AddLowPriority(named("a")) })}
		start(t, q, r.handle)
		q.Add(named("a"))
		synctest.Wait()
		q.Add(named("a"))
		q.Add(named("b"))
		r.finish(named("a"), Result{})
		synctest.Wait()
		if at, _ := q.Find(named("a")); at != Queued {
			t.Errorf("the changed key is %q, want %q", at, Queued)
		}
		r.finishAll(t, 2)
	})
}

// TestLowPriorityInFlightStaysLow verifies that a low-priority key in flight does not become a normal key
// when it is added again with low priority.
func TestLowPriorityInFlightStaysLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := limited(1, 1, 1), &recorder{}
		start(t, q, r.handle)
		q.AddLowPriority(named("a"))
		synctest.Wait()
		q.AddLowPriority(named("a"))
		q.Add(named("b"))
		q.Add(named("c"))
		r.finish(named("a"), Result{})
		synctest.Wait()
		if at, _ := q.Find(named("a")); at != QueuedLowPriority {
			t.Errorf("the low-priority key is %q, want %q", at, QueuedLowPriority)
		}
		r.finishAll(t, 3)
	})
}

// TestTheEndOfAnEarlierBackOffIsNoChange verifies that a low-priority key does not become a normal key
// when a backoff ends that RetryNow has cut short. An outage during a first sync leaves many such
// backoffs.
func TestTheEndOfAnEarlierBackOffIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Hour, MaxDelay: time.Hour}), &recorder{}
		start(t, q, r.handle)
		q.AddLowPriority(named("a"))
		synctest.Wait()
		r.finish(named("a"), Result{Err: errors.New("bus down")})
		q.RetryNow()
		synctest.Wait()
		r.finish(named("a"), Result{})
		q.Add(named("b"))
		time.Sleep(2 * time.Hour) // on the synctest clock
		if at, _ := q.Find(named("a")); at != QueuedLowPriority {
			t.Errorf("the key is %q, want %q", at, QueuedLowPriority)
		}
		r.finishAll(t, 2)
	})
}
