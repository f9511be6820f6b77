package workqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestBacklog compares random operations with those on a slice: each key is popped once, in
// order, unless it was removed.
func TestBacklog(t *testing.T) {
	b := newBacklog()
	var want []event.Key
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		k := key(random.IntN(1500))
		at := slices.Index(want, k)
		switch op := random.IntN(8); {
		case op < 5 && len(want) < 1300:
			if b.push(k) != (at < 0) {
				t.Fatalf("push of a key at %d", at)
			}
			if at < 0 {
				want = append(want, k)
			}
		case op == 5:
			if b.remove(k) != (at >= 0) {
				t.Fatalf("remove of a key at %d", at)
			}
			if at >= 0 {
				want = slices.Delete(want, at, at+1)
			}
		default:
			if len(want) == 0 {
				continue
			}
			if got := b.pop(); got != want[0] {
				t.Fatalf("popped %v, want %v", got, want[0])
			}
			want = want[1:]
		}
		if b.len() != len(want) {
			t.Fatalf("%d keys, want %d", b.len(), len(want))
		}
	}
	for _, k := range want {
		if got := b.pop(); got != k {
			t.Fatalf("got %v, want %v", got, k)
		}
	}
	if b.keys != nil || b.numbers != nil {
		t.Error("an empty backlog keeps memory")
	}
}

// TestKeysOfOneHash: two keys with the same hash are both popped.
func TestKeysOfOneHash(t *testing.T) {
	b := newBacklog()
	b.hash = func(k event.Key) uint64 { return uint64(len(k.Name)) }
	want := map[event.Key]bool{}
	for n := range 2000 {
		b.push(key(n))
		want[key(n)] = true
	}
	for n := range 50 { // remove does not find all of them
		b.remove(key(7 * n))
	}
	for n := range 50 {
		b.push(key(7 * n))
	}
	for b.len() > 0 {
		delete(want, b.pop())
	}
	if len(want) > 0 {
		t.Errorf("%d keys are lost", len(want))
	}
}

// TestAnEmptySlotTakesNoMemory: neither popped keys, nor keys that change during a pause
// and are pushed again by every resync, take memory forever.
func TestAnEmptySlotTakesNoMemory(t *testing.T) {
	b := newBacklog()
	for range 100 {
		for n := range 2000 {
			b.push(key(n))
		}
		for n := range 1990 {
			b.remove(key(n))
		}
	}
	if slots := len(b.keys) * chunkSize; slots > 3*2000+2*chunkSize {
		t.Errorf("%d slots for %d keys", slots, b.len())
	}
	for n := range 2000 {
		b.push(key(n))
	}
	for pieces := b.keys; len(b.keys) > 1; {
		if b.pop(); len(b.keys) < len(pieces) && pieces[0] != nil {
			t.Fatal("a chunk that was popped is kept")
		}
	}
}

// TestMostOfAFirstSyncIsInTheBacklog: the backlog keeps its order, and a key that changes
// goes before it, once.
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
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestLowPriorityStaysInTheBacklogInAPause: during a pause, keys stay in the backlog, where
// they take less memory than parked keys. A key that changes is parked, and goes first
// after the pause.
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
			drained := make(chan error, 1)
			go func() { drained <- q.Drain(t.Context()) }()
			r.finishAll(t, keys)
			if err := <-drained; err != nil || len(r.order) != keys {
				t.Errorf("%d keys were handed out: %v", len(r.order), err)
			}
		})
	}
}

// TestManyLowPriorityKeysChange: keys that change become normal keys. The other keys
// follow, and keys added later come after them.
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
		if at := slices.Index(r.order, key(keys)); at < keys-4 { // there are four workers
			t.Errorf("the last key was handed out at index %d", at)
		}
	})
}

// TestDrainRefusesKeys: a drain rejects keys and pauses, even while the backlog is handed
// out.
func TestDrainRefusesKeys(t *testing.T) {
	const keys = 1000
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 1, MaxInFlight: Limit{Keys: 1}, MaxLowPriorityInFlight: Limit{Keys: 1}, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		start(t, q, r.handle)
		drained := make(chan error, 1)
		go func() { drained <- q.Drain(t.Context()) }()
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

// TestDrainEmptiesTheBacklog: a drain empties the backlog of a queue that waits for
// completions.
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

// TestBacklogMakesProgress: whether keys change, fail or return while others are added,
// the last key is handed out without another Add.
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
