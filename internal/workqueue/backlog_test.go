package workqueue

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestBacklog compares random operations on the backlog with the same operations on a set. Each key
// is popped once, unless it was removed, and the resources take turns.
func TestBacklog(t *testing.T) {
	b, left := newBacklog(), map[event.Key]bool{}
	waited := map[string]int{} // for each resource that has keys: the number of pops since one of its keys was popped
	popped := func(k event.Key) {
		t.Helper()
		if !left[k] {
			t.Fatalf("popped %v, which is not in the set", k)
		}
		delete(left, k)
		for of := range left {
			waited[of.Resource] += 0 // the resource waits from now on
		}
		for r := range waited {
			waited[r]++
		}
		if delete(waited, k.Resource); len(waited) > 0 && slices.Max(slices.Collect(maps.Values(waited))) > 3 {
			t.Fatalf("a resource waits for %v", waited)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		k := key(random.IntN(500))
		k.Resource = []string{"nodes", "pods", "services"}[random.IntN(3)]
		switch op := random.IntN(8); {
		case op < 5 && len(left) < 1300:
			if b.push(k) == left[k] {
				t.Fatalf("push of a key that is there: %t", left[k])
			}
			left[k] = true
		case op == 5:
			if b.remove(k) != left[k] {
				t.Fatalf("remove of a key that is there: %t", left[k])
			}
			delete(left, k)
			clear(waited)
		case len(left) > 0:
			popped(b.pop())
		}
		if b.len() != len(left) || b.has(k) != left[k] {
			t.Fatalf("%d keys, want %d", b.len(), len(left))
		}
	}
	for len(left) > 0 {
		popped(b.pop())
	}
	if len(b.of) > 0 || len(b.turns) > 0 || b.len() > 0 {
		t.Error("an empty backlog keeps memory")
	}
}

// TestASmallFirstSyncDoesNotWaitForALargeOne verifies that the keys of a small first sync are
// popped in turn with those of a large one.
func TestASmallFirstSyncDoesNotWaitForALargeOne(t *testing.T) {
	const large, small = 2000, 10
	b := newBacklog()
	for n := range large {
		b.push(key(n))
	}
	for n := range small {
		b.push(event.Key{Resource: "nodes", Name: key(n).Name})
	}
	for range 2 * small {
		b.pop()
	}
	if got := b.len(); got != large-small || len(b.of) != 1 {
		t.Errorf("%d keys of %d resources are left, want %d of the large one", got, len(b.of), large-small)
	}
}

// TestMostOfAFirstSyncIsInTheBacklog verifies that most keys of a first sync stay in the backlog. A
// key that changes is handed out before the backlog, and only once.
func TestMostOfAFirstSyncIsInTheBacklog(t *testing.T) {
	const keys = 5000
	depth := &gauge{}
	q := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Second, MaxDelay: time.Second, MetricsProvider: depth})
	for n := range keys {
		q.AddLowPriority(key(n))
	}
	for n := range keys {
		q.AddLowPriority(key(n)) // is queued already
	}
	q.Add(key(keys - 1))
	q.Add(key(0))
	want := []string{key(keys - 1).Name, key(0).Name}
	for n := range keys - 2 {
		want = append(want, key(n+1).Name)
	}
	var got []string
	handedOut(t, q, keys, func(name string) {
		got = append(got, name)
		in, left := q.queue.Len(), keys-len(got)
		if in > 300 || q.Len() != left || depth.n != left {
			t.Errorf("%d keys wait, %d of them in the queue, and the metric says %d; want %d", q.Len(), in, depth.n, left)
		}
	})
	if !slices.Equal(got[:2], want[:2]) || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got %q", got)
	}
}

// TestLowPriorityStaysInTheBacklogInAPause verifies that keys stay in the backlog during a pause,
// because they take less memory there than parked keys. A key that changes is parked, and is handed
// out first after the pause.
func TestLowPriorityStaysInTheBacklogInAPause(t *testing.T) {
	const keys = 2000
	for _, changes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, r := testQueue(), &recorder{}
			start(t, q, r.handle)
			q.Pause(func(event.Key) bool { return false })
			if changes {
				q.Add(key(keys - 1))
				q.Add(key(keys - 2))
			}
			synctest.Wait()
			for n := range keys {
				q.AddLowPriority(key(n))
			}
			if changes {
				q.Add(key(keys - 2))
			}
			synctest.Wait()
			parked := 0
			if changes {
				parked = 2
			}
			if r.handed() != 0 || q.queue.Len() != 0 || q.Len() != keys-parked || q.Delayed() != parked {
				t.Errorf("%d keys were handed out, %d wait, %d of them in the queue, and %d are parked", r.handed(), q.Len(), q.queue.Len(), q.Delayed())
			}
			q.Resume()
			drained := drain(t, q)
			r.finishAll(t, keys)
			if err := <-drained; err != nil || len(r.order) != keys {
				t.Errorf("%d keys were handed out: %v", len(r.order), err)
			}
		})
	}
}

// TestManyLowPriorityKeysChange verifies that the backlog is handed out even if all staged keys
// change and become normal keys. A low-priority key that is added later is handed out too.
func TestManyLowPriorityKeysChange(t *testing.T) {
	const keys = 1000
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		for n := range maxStaged {
			q.Add(key(n))
		}
		q.AddLowPriority(key(keys))
		start(t, q, r.handle)
		r.finishAll(t, keys+1)
		slices.SortFunc(r.order, event.Key.Compare)
		if n := len(slices.Compact(r.order)); n != keys+1 {
			t.Errorf("%d keys were handed out, want %d", n, keys+1)
		}
	})
}

// TestDrainRefusesKeys verifies that a drain rejects keys and pauses, even while keys of the
// backlog are handed out.
func TestDrainRefusesKeys(t *testing.T) {
	const keys = 1000
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		start(t, q, r.handle)
		drained := drain(t, q)
		synctest.Wait()
		q.Pause(func(event.Key) bool { return false })
		q.Add(key(keys))
		q.AddLowPriority(key(keys + 1))
		r.finishAll(t, keys)
		if err := <-drained; err != nil || len(r.order) != keys {
			t.Errorf("%d keys were handed out: %v", len(r.order), err)
		}
	})
}

// TestDrainEmptiesTheBacklog verifies that a drain hands out the whole backlog even if handlers
// complete their keys later.
func TestDrainEmptiesTheBacklog(t *testing.T) {
	q := testQueue()
	const keys = 2000
	for n := range keys {
		q.AddLowPriority(key(n))
	}
	var mu sync.Mutex
	handed := map[event.Key]int{}
	stop := start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
		mu.Lock()
		handed[k]++
		mu.Unlock()
		go done(Result{})
	})
	defer stop()
	if err := q.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(handed) != keys || q.Len() != 0 {
		t.Errorf("%d keys were handed out, %d are left", len(handed), q.Len())
	}
}

// TestBacklogMakesProgress verifies that the last key of the backlog is handed out without another
// Add, even if keys change, fail, or need a further step while other keys are added.
func TestBacklogMakesProgress(t *testing.T) {
	const keys, from = 3000, 4
	for round := range 3 {
		q := New(Config{Workers: 4, MaxInFlight: Limit{Keys: 64}, MaxLowPriorityInFlight: Limit{Keys: 16}, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond})
		var mu sync.Mutex
		handed := map[event.Key]int{}
		all := make(chan struct{})
		stop := start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
			mu.Lock()
			defer mu.Unlock()
			handed[k]++
			if len(handed) == from*keys && handed[k] == 1 {
				close(all)
			}
			switch {
			case handed[k] == 1 && len(handed)%7 == 0:
				go done(Result{Err: fmt.Errorf("round %d", round)})
			case handed[k] == 1 && len(handed)%11 == 0:
				go done(Result{Again: true})
			default:
				go done(Result{})
			}
		})
		var adding sync.WaitGroup
		for g := range from {
			adding.Go(func() {
				for n := range keys {
					q.AddLowPriority(key(g*keys + n))
					if n%5 == 0 {
						q.Add(key(g*keys + n))
					}
				}
			})
		}
		adding.Wait()
		<-all
		stop()
	}
}

// TestAKeyIsNotInTheBacklogAndInTheQueue verifies that a key that changed in flight is not also in the
// backlog if it is added with low priority right after its completion.
func TestAKeyIsNotInTheBacklogAndInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, depth := Limit{Keys: 1}, &gauge{}
		q, r := New(Config{Workers: 1, MaxInFlight: one, MaxLowPriorityInFlight: one, BaseDelay: 1, MaxDelay: 1, MetricsProvider: depth}), &recorder{}
		q.queue = beforeDone{q.queue, func() { q.AddLowPriority(key(0)) }}
		start(t, q, r.handle)
		q.Add(key(0))
		synctest.Wait()
		q.Add(key(0))
		q.Add(key(maxStaged + 1))
		for n := range maxStaged {
			q.AddLowPriority(key(n + 1))
		}
		r.finish(key(0), Result{}) // the other changed key is handed out next
		synctest.Wait()
		if at, _ := q.Find(key(0)); at != Queued || q.Len() != maxStaged+1 || depth.n != maxStaged+1 {
			t.Errorf("the key is %q, %d keys wait, and the metric says %d; want %q and %d", at, q.Len(), depth.n, Queued, maxStaged+1)
		}
		q.queue = q.queue.(beforeDone).TypedRateLimitingInterface
		r.finishAll(t, maxStaged+2)
	})
}
