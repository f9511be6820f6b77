package workqueue

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestWhatCanWaitLeavesRoomForChanges: with the bus are no more of a first sync than may be,
// and changes have the rest.
func TestWhatCanWaitLeavesRoomForChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, behind, workers = 20, 8, 4
		q, r := New(Config{Workers: workers, MaxInFlight: most, MaxBehind: behind, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		start(t, q, r.handle)
		for n := range 100 {
			q.AddBehind(key(n))
		}
		synctest.Wait()
		if got := q.InFlight(); got != behind {
			t.Fatalf("%d that can wait are with the bus, want %d", got, behind)
		}
		for n := range most {
			k := key(n)
			k.Namespace = "live"
			q.Add(k)
		}
		first := r.order[:2:2]
		r.finish(first[0], Result{})
		r.finish(first[1], Result{}) // a quarter, so that the workers go on
		synctest.Wait()
		waiting := func() (n int) {
			for k := range r.open {
				if k.Namespace != "live" {
					n++
				}
			}
			return n
		}
		if got := q.InFlight(); got != most || waiting() > behind {
			t.Errorf("%d are with the bus, of which %d can wait; want %d and at most %d", got, waiting(), most, behind)
		}
		for k := range maps.Clone(r.open) {
			if k.Namespace == "live" {
				r.finish(k, Result{})
			}
		}
		synctest.Wait()
		if got := waiting(); got > behind {
			t.Errorf("%d that can wait are with the bus when the changes are done, want at most %d", got, behind)
		}
		for ; q.InFlight() > 0; synctest.Wait() {
			for k := range maps.Clone(r.open) {
				r.finish(k, Result{})
			}
		}
		if got := r.handed(); got != 100+most {
			t.Errorf("%d were handed out, want %d", got, 100+most)
		}
	})
}

// TestAllOfWhatCanWaitIsHandedOut: while changes come and go all the time, so that there is
// never nothing with the bus.
func TestAllOfWhatCanWaitIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const behind, keys, changes = 64, 67, 1000
		q := New(Config{Workers: 4, MaxInFlight: 512, MaxBehind: behind, BaseDelay: time.Second, MaxDelay: time.Second})
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
			time.Sleep(500 * time.Microsecond) // of synctest's clock
		}
		for n := range keys {
			q.AddBehind(key(n))
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
			t.Errorf("%d of %d that can wait were handed out while changes came", waited, keys)
		}
	})
}

// TestAGateThatIsShutOpensForAll: whoever waits is told, though another came in meanwhile.
func TestAGateThatIsShutOpensForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, behind, waiting = 512, 64, 3
		g := newGate(most, behind)
		g.enter(changed) // something is always inside
		for range behind {
			g.enter(canWait)
		}
		entered := make(chan bool, waiting)
		for range waiting {
			go func() { entered <- g.enter(canWait) }()
		}
		synctest.Wait()
		g.leave(canWait) // too few for it to open
		g.enter(changed)
		for range behind - 1 {
			g.leave(canWait)
		}
		synctest.Wait()
		if len(entered) != waiting {
			t.Errorf("%d of %d entered", len(entered), waiting)
		}
		g.end()
	})
}
