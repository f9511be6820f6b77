package workqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// slowBus answers one after the other, each after a time, and what it has answered takes a
// time to arrive: it is as far away.
type slowBus struct {
	each, away time.Duration

	mu      sync.Mutex
	free    time.Time // when it has dealt with all that it was sent
	waiting int       // sent and not answered
	most    int       // of waiting, when a change was sent
}

func (b *slowBus) handle(_ context.Context, k event.Key, done func(Result)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.each)
	if k.Namespace == "live" {
		b.most = max(b.most, b.waiting)
	}
	b.waiting++
	time.AfterFunc(b.free.Add(b.away).Sub(now), func() {
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		done(Result{})
	})
}

// TestWhatCanWaitLeavesTheBusToChanges: a change does not stand behind hundreds of a first
// sync at the bus, however fast that is; and a bus that is far away is not idle for it.
func TestWhatCanWaitLeavesTheBusToChanges(t *testing.T) {
	const most = 512
	for name, test := range map[string]struct {
		each, away   time.Duration
		least, limit int // waiting at the bus when a change comes
	}{
		"fast":                  {100 * time.Microsecond, time.Millisecond, 100, 300},
		"slow":                  {2 * time.Millisecond, time.Millisecond, 1, 2 * leastWidth},
		"so fast that all goes": {10 * time.Microsecond, time.Millisecond, 1, most},
		"fast and far away":     {100 * time.Microsecond, 200 * time.Millisecond, most - most/4, most},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, b := New(Config{Workers: 4, MaxInFlight: most, BaseDelay: time.Second, MaxDelay: time.Second}), &slowBus{each: test.each, away: test.away}
				const keys = 20_000
				for n := range keys {
					q.AddBehind(key(n))
				}
				start(t, q, b.handle)
				changes := 0
				for live := range keys {
					time.Sleep(50 * time.Millisecond) // of synctest's clock
					synctest.Wait()
					if q.Len() < keys/10 {
						break // soon there are no more that can wait
					}
					if live < 20 {
						continue // until it is known what the bus takes
					}
					changes++
					k := key(live)
					k.Namespace = "live"
					q.Add(k)
				}
				synctest.Wait()
				if name != "so fast that all goes" && changes < 5 {
					t.Fatalf("only %d changes came while others waited", changes)
				}
				if changes > 0 && (b.most < test.least || b.most > test.limit) {
					t.Errorf("a change stood behind %d at the bus, want %d to %d", b.most, test.least, test.limit)
				}
			})
		})
	}
}

// TestAnswersThatSayNothing: a key that is dealt with at once, and one that fails, do not
// tell how fast the bus is.
func TestAnswersThatSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Workers: 1, MaxInFlight: 512, BaseDelay: time.Hour, MaxDelay: time.Hour})
		n := 0
		start(t, q, func(_ context.Context, _ event.Key, done func(Result)) {
			if n++; n%2 == 0 {
				done(Result{})
				return
			}
			time.AfterFunc(time.Nanosecond, func() { done(Result{Err: context.DeadlineExceeded}) })
		})
		for n := range 1000 {
			q.AddBehind(key(n))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if w := q.inFlight.window; n != 1000 || w.width != firstWidth || w.count != 0 || w.recent[0] != 0 {
			t.Errorf("after %d keys the window has %+v", n, w)
		}
	})
}

// TestTheWindowForgets: a bus that has moved away is given more again.
func TestTheWindowForgets(t *testing.T) {
	w, now := newWindow(512), time.Unix(0, 0)
	answer := func(d time.Duration, n int) {
		for range n {
			now = now.Add(d / time.Duration(w.width))
			w.took(d, now)
		}
	}
	answer(time.Millisecond, 10_000)
	if w.width != 512 {
		t.Fatalf("the width is %d where nothing waits, want 512", w.width)
	}
	answer(200*time.Millisecond, 100)
	for range 10 {
		answer(200*time.Millisecond, w.width)
	}
	if w.width != leastWidth {
		t.Fatalf("the width is %d where answers take 200 times as long, want %d", w.width, leastWidth)
	}
	for until := now.Add(3 * period); now.Before(until); {
		answer(200*time.Millisecond, 1)
	}
	if w.width != 512 {
		t.Errorf("the width is %d where answers have taken as long for minutes, want 512", w.width)
	}
}
