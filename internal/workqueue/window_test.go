package workqueue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// fifoBus processes messages in order. Each message takes the duration each, and its
// acknowledgement arrives after the additional duration way.
type fifoBus struct {
	each, way time.Duration
	mu        sync.Mutex
	free      time.Time // when the bus has processed all its messages
}

// publish calls acknowledged when the bus has processed one more message.
func (b *fifoBus) publish(acknowledged func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.each)
	time.AfterFunc(time.Until(b.free)+b.way, acknowledged)
}

// TestAChangeDoesNotWaitForAFirstSyncOnTheBus verifies that a change takes little longer during a
// first sync than without one. Nevertheless, the bus is as busy as with the highest number of
// messages in flight that the limit allows.
func TestAChangeDoesNotWaitForAFirstSyncOnTheBus(t *testing.T) {
	const keys, limit, delay = 20_000, 256, 2 * time.Millisecond
	for name, bus := range map[string]*fifoBus{
		"near":             {each: 140 * time.Microsecond, way: 200 * time.Microsecond},
		"near and fast":    {each: 10 * time.Microsecond, way: 200 * time.Microsecond},
		"distant":          {each: 300 * time.Microsecond, way: 50 * time.Millisecond},
		"slow":             {each: 5 * time.Millisecond, way: time.Millisecond},
		"distant and fast": {each: 10 * time.Microsecond, way: 50 * time.Millisecond}, // the limit is too low to keep this bus busy
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(Config{
					Workers: 8, MaxInFlight: Limit{Keys: 512}, MaxLowPriorityInFlight: Limit{Keys: limit}, MaxLowPriorityDelay: delay,
					BaseDelay: time.Second, MaxDelay: time.Second,
				})
				all := make(chan struct{})
				var left sync.WaitGroup
				left.Add(keys)
				go func() { left.Wait(); close(all) }()
				added := map[event.Key]time.Time{}
				var longest time.Duration
				var mu sync.Mutex
				start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
					q.Hold(k, 1000)
					bus.publish(func() {
						mu.Lock()
						if at, is := added[k]; is {
							longest = max(longest, time.Since(at))
						} else {
							left.Done()
						}
						mu.Unlock()
						done(Result{})
					})
				})
				begun := time.Now()
				for n := range keys {
					q.AddLowPriority(key(n))
				}
				changes := time.NewTicker(50 * time.Millisecond)
				defer changes.Stop()
				for n, working := 0, true; working; n++ {
					select {
					case <-all:
						working = false
					case now := <-changes.C:
						mu.Lock()
						added[change(n)] = now
						mu.Unlock()
						q.Add(change(n))
					}
				}
				took, round := time.Since(begun), bus.each+bus.way
				mu.Lock()
				defer mu.Unlock()
				least := max(keys*bus.each, keys*round/limit)
				t.Logf("a change takes up to %s, all take %s of %s", longest, took, least)
				// The window doubles once more than necessary before the first messages wait. On a
				// bus that takes longer per message than the delay, even the messages of the
				// smallest window wait for each other.
				if most := round + 3*(round/4+delay) + minWindow*bus.each; longest > most {
					t.Errorf("a change took up to %s, want at most %s, of which %s are the way", longest, most, bus.way)
				}
				if took > least*13/10 {
					t.Errorf("%d keys took %s, want about %s", keys, took, least)
				}
			})
		})
	}
}

// TestWindow follows a bus that becomes slower and faster.
func TestWindow(t *testing.T) {
	now := time.Unix(1, 0)
	w := newWindow(256, 2*time.Millisecond)
	round := func(took time.Duration) { // one window of messages
		for range w.keys() {
			w.acknowledged(took, w.keys(), now)
		}
		now = now.Add(took)
	}
	if w.keys() != minWindow {
		t.Errorf("the window begins with %d keys", w.keys())
	}
	for range 10 {
		round(time.Millisecond)
	}
	if w.keys() != 256 {
		t.Errorf("%d keys while no message waits, want the limit", w.keys())
	}
	for range 10 {
		round(20 * time.Millisecond)
	}
	if w.keys() != minWindow {
		t.Errorf("%d keys while messages wait, want the smallest window", w.keys())
	}
	for range minWindow {
		w.acknowledged(time.Millisecond, 1, now)
	}
	if w.keys() != minWindow {
		t.Errorf("%d keys, although fewer were in flight", w.keys())
	}
	// The latency grows. After two periods, it counts as the latency of an idle bus.
	now = now.Add(windowPeriod)
	for range 600 {
		round(50 * time.Millisecond)
	}
	if w.keys() < 100 {
		t.Errorf("%d keys on a distant bus without a queue, want at least 100", w.keys())
	}
	now = now.Add(5 * windowPeriod) // nothing is published for a while
	round(100 * time.Millisecond)
	if w.shortest != [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond} {
		t.Errorf("after a pause, the shortest times are %s", w.shortest)
	}
}

// TestWindowOfAFixedSize verifies that the window has a fixed size without a delay. With a delay,
// it stays between 1 and the limit.
func TestWindowOfAFixedSize(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		for _, keys := range []int{1, 2, 256} {
			t.Run(fmt.Sprintf("%d, %s", keys, delay), func(t *testing.T) {
				w := newWindow(keys, delay)
				for n := range 1000 {
					w.acknowledged(time.Duration(n)*time.Hour, w.keys(), time.Unix(int64(n), 0))
					if got := w.keys(); got < 1 || got > int64(keys) || delay == 0 && got != int64(keys) {
						t.Fatalf("%d", got)
					}
				}
			})
		}
	}
}
