package workqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

func limited(workers, all, lowPriority int) *Queue {
	return New(Config{
		Workers: workers, MaxInFlight: Limit{Keys: all}, MaxLowPriorityInFlight: Limit{Keys: lowPriority},
		BaseDelay: time.Second, MaxDelay: time.Second,
	})
}

// change returns a key in a namespace of its own, so that only the limits apply, not the share of a
// flow.
func change(n int) event.Key {
	return event.Key{Resource: "pods", Namespace: fmt.Sprint("tenant-", n), Name: fmt.Sprint("change-", n)}
}

// TestAChangeDoesNotWaitForLowPriorityRoom verifies that a change of another object is handed out
// at once while a first sync has reached the low-priority limit and no handler completes. In an
// earlier version, workers waited for low-priority room while they held a low-priority key, so no
// worker was left to take the change.
func TestAChangeDoesNotWaitForLowPriorityRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, lowPriority, keys = 20, 8, 1000
		q, r := limited(4, all, lowPriority), &recorder{}
		start(t, q, r.handle)
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		synctest.Wait()
		if got := r.handed(); got != lowPriority {
			t.Fatalf("%d low-priority keys are handed out, want %d", got, lowPriority)
		}
		for n := range all - lowPriority {
			q.Add(change(n))
			synctest.Wait()
			if got := r.order[len(r.order)-1]; got != change(n) {
				t.Fatalf("change %d is not handed out while low-priority room is used up; the last key is %v", n, got)
			}
		}
		q.Add(key(keys - 1)) // queued with low priority, and the limit of all keys is reached
		q.Add(change(all))
		synctest.Wait()
		if got := q.InFlight(); got != all || r.handed() != all {
			t.Fatalf("%d keys are in flight, want %d", got, all)
		}
		for n := range lowPriority { // the low-priority keys stay in flight
			r.finish(change(n), Result{})
		}
		synctest.Wait()
		if got := r.order[all:]; len(got) != 2 || !slices.Contains(got, key(keys-1)) || !slices.Contains(got, change(all)) { // two workers take them
			t.Errorf("%v are handed out when changes complete, want the two changes that waited", got)
		}
		n := 0
		for n < r.handed() { // each completion hands out more keys
			if _, open := r.open[r.order[n]]; open {
				r.finish(r.order[n], Result{})
			}
			synctest.Wait()
			n++
		}
		if got := r.handed(); got != keys+all-lowPriority+1 {
			t.Errorf("%d keys are handed out, want all %d", got, keys+all-lowPriority+1)
		}
	})
}

// TestFailedKeysDelayNoOthers verifies that failed keys don't delay other keys, for example when
// Kafka immediately rejects messages for an unresponsive partition. A failed key releases its share of
// the limits and is queued again after its backoff.
func TestFailedKeysDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, lowPriority, keys = 8, 4, 100
		q := limited(2, all, lowPriority)
		thawed := false
		var mu sync.Mutex
		stuck, sent, left := 0, 0, 2*keys
		start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
			mu.Lock()
			defer mu.Unlock()
			switch n, _ := strconv.Atoi(k.Name); {
			case thawed || n%2 == 0:
				sent++
				done(Result{})
			case stuck < lowPriority/2: // the share of one partition
				stuck++
				time.AfterFunc(time.Hour, func() { done(Result{Err: context.DeadlineExceeded}) })
			default:
				done(Result{Err: context.DeadlineExceeded})
			}
		})
		for n := range keys {
			q.AddLowPriority(key(n))
			k := key(n)
			k.Namespace = "live"
			q.Add(k)
		}
		synctest.Wait()
		mu.Lock()
		if sent != left/2 {
			t.Errorf("%d of %d keys of the healthy partition are sent while the other one is stuck", sent, left/2)
		}
		thawed = true
		mu.Unlock()
		time.Sleep(2 * time.Hour) // on the synctest clock
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if sent != left || q.Len()+q.Delayed()+q.InFlight() != 0 {
			t.Errorf("%d of %d keys are sent in the end; %d wait, %d are delayed, %d in flight", sent, left, q.Len(), q.Delayed(), q.InFlight())
		}
	})
}

// TestLargeEventsLeaveRoomForChanges verifies that the bytes in flight are limited like the keys,
// and that a change does not wait for low-priority bytes. In an earlier version, a worker waited
// for them.
func TestLargeEventsLeaveRoomForChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, lowPriority, size, keys = 1000, 500, 100, 50
		q := New(Config{
			Workers: 1, MaxInFlight: Limit{Keys: keys, Bytes: all}, MaxLowPriorityInFlight: Limit{Keys: keys, Bytes: lowPriority},
			BaseDelay: time.Second, MaxDelay: time.Second,
		})
		r := &recorder{}
		start(t, q, func(ctx context.Context, k event.Key, done func(Result)) {
			q.Hold(k, 10*size)
			q.Hold(k, size) // the event was too large for the bus, so the handler made it smaller
			r.handle(ctx, k, done)
		})
		for n := range keys {
			q.AddLowPriority(key(n))
		}
		synctest.Wait()
		if got := r.handed(); got != lowPriority/size {
			t.Fatalf("%d large events of low priority are in flight, want %d", got, lowPriority/size)
		}
		for n := range keys {
			q.Add(change(n))
		}
		synctest.Wait()
		if got := r.handed(); got != all/size {
			t.Fatalf("%d large events are in flight, want %d", got, all/size)
		}
		for _, k := range r.order[lowPriority/size:] {
			r.finish(k, Result{})
		}
		synctest.Wait()
		for _, k := range r.order[lowPriority/size:] {
			if k.Namespace == "default" {
				t.Errorf("%v is handed out while low-priority room is used up", k)
			}
		}
		if got := r.handed(); got <= all/size {
			t.Error("no further change is handed out after the completions")
		}
		r.finishAll(t, 2*keys-lowPriority/size)
	})
}

// TestAllLowPriorityKeysAreHandedOut verifies that all low-priority keys are handed out during a
// constant stream of changes, in which some key is always in flight.
func TestAllLowPriorityKeysAreHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, changes = 67, 1000
		q := limited(4, 512, 64)
		var mu sync.Mutex
		waited := 0
		start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
			took := 30 * time.Millisecond
			if k.Namespace != "live" {
				took = 10 * time.Millisecond
				mu.Lock()
				waited++
				mu.Unlock()
			}
			time.AfterFunc(took, func() { done(Result{}) })
		})
		change := func(n int) {
			k := key(n)
			k.Namespace = "live"
			q.Add(k)
			time.Sleep(500 * time.Microsecond) // on the synctest clock
		}
		for n := range keys {
			q.AddLowPriority(key(n))
			if n%5 == 0 {
				change(-n)
			}
		}
		for n := range changes {
			change(n)
		}
		mu.Lock()
		defer mu.Unlock()
		if waited != keys {
			t.Errorf("%d of %d low-priority keys were handed out during the changes", waited, keys)
		}
	})
}

// TestRoomOpensWhenAnEighthIsFree verifies that a reached limit allows keys again only when an
// eighth of it is free, so that not every completion wakes a worker.
func TestRoomOpensWhenAnEighthIsFree(t *testing.T) {
	for limit, want := range map[int]int{1: 1, 7: 1, 8: 2, 64: 9, 512: 65} {
		for name, c := range map[string]struct {
			limit Limit
			meter func(*budget) *meter
		}{
			"keys":  {Limit{Keys: limit}, func(b *budget) *meter { return &b.keys }},
			"bytes": {Limit{Keys: 1000, Bytes: int64(limit)}, func(b *budget) *meter { return &b.bytes }},
		} {
			b := newBudget(c.limit)
			m := c.meter(&b)
			for range 2 { // the second round fills the budget to the limit again
				taken := 0
				for ; b.open(); taken++ {
					m.take(1)
				}
				if m.used != int64(limit) {
					t.Errorf("%s: %d reached a limit of %d", name, m.used, limit)
				}
				given := 0
				for ; !b.open() && given < limit; given++ {
					m.give(1)
				}
				if given != want || !b.open() {
					t.Errorf("%s: a limit of %d opens after %d are free (open %v), want %d", name, limit, given, b.open(), want)
				}
			}
		}
	}
}

// TestRoomOpensForAllWorkers verifies that every waiting worker is woken, even if another key was
// handed out meanwhile.
func TestRoomOpensForAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, lowPriority, workers = 512, 64, 3
		q, r := limited(workers, all, lowPriority), &recorder{}
		busy := make(chan struct{})
		start(t, q, func(ctx context.Context, k event.Key, done func(Result)) {
			r.handle(ctx, k, done)
			if n, _ := strconv.Atoi(k.Name); n >= lowPriority {
				<-busy // so that each worker takes one key
			}
		})
		for n := range lowPriority + 10*workers {
			q.AddLowPriority(key(n))
		}
		synctest.Wait()
		r.finish(key(0), Result{}) // one completion is too few for the room to open
		q.Add(change(0))
		for n := range lowPriority - 1 {
			r.finish(key(n+1), Result{})
		}
		synctest.Wait()
		if got := r.handed(); got != lowPriority+1+workers {
			t.Errorf("%d of %d workers have a key", got-lowPriority-1, workers)
		}
		close(busy)
		r.finishAll(t, 1+10*workers)
	})
}
