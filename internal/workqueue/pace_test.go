package workqueue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestLowPriorityKeysRestWhileObjectsChange verifies that the events of low-priority keys are
// published in short bursts with rests between them. Keys rest only while objects change, and only
// if they have events to publish.
func TestLowPriorityKeysRestWhileObjectsChange(t *testing.T) {
	for name, test := range map[string]struct {
		delay            time.Duration
		changes, publish bool
		rests            bool
	}{
		"objects change":                 {delay: time.Millisecond, changes: true, publish: true, rests: true},
		"nothing changes":                {delay: time.Millisecond, publish: true},
		"everything is on the bus":       {delay: time.Millisecond, changes: true},
		"the bus gets batches of events": {changes: true, publish: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, each = 5_000, 50 * time.Microsecond
				q := New(Config{
					Workers: 1, MaxInFlight: Limit{Keys: 4}, MaxLowPriorityInFlight: Limit{Keys: 1}, MaxLowPriorityDelay: test.delay,
					BaseDelay: time.Second, MaxDelay: time.Second,
				})
				var left sync.WaitGroup
				left.Add(keys)
				var last, begun time.Time // when the last low-priority key was handed out, and when its burst began
				rests, longest := 0, time.Duration(0)
				for n := range keys {
					q.AddLowPriority(key(n))
				}
				start(t, q, func(_ context.Context, k event.Key, done func(Result)) {
					defer done(Result{})
					if k.Name == change(0).Name {
						return
					}
					if now := time.Now(); now.Sub(last) >= rest {
						rests, begun = rests+1, now
					} else if rests > 1 { // keys do not rest before the first change
						longest = max(longest, now.Sub(begun))
					}
					if last = time.Now(); test.publish {
						q.Hold(k, 1000)
					}
					time.Sleep(each)
					left.Done()
				})
				all := make(chan struct{})
				go func() { left.Wait(); close(all) }()
				for working := true; working; {
					select {
					case <-all:
						working = false
					case <-time.After(10 * time.Millisecond):
						if test.changes {
							q.Add(change(0))
						}
					}
				}
				if rests--; (rests > 0) != test.rests { // the first key follows no rest
					t.Errorf("%d rests, want some: %t", rests, test.rests)
				}
				if test.rests && longest > burst+each {
					t.Errorf("a burst took %s, want at most %s", longest, burst+each)
				}
			})
		})
	}
}
