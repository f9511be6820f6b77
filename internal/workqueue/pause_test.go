package workqueue

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

func TestNothingIsHandedOutInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := New(Config{Workers: 2, MaxInFlight: Limit{Keys: 20}, MaxLowPriorityInFlight: Limit{Keys: 10}, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		start(t, q, r.handle)
		q.Add(key(1))
		synctest.Wait()
		q.Pause(except())
		q.Pause(except())
		r.finish(key(1), Result{Err: errors.New("bus down")})
		for n := range 5 {
			q.Add(key(n + 2))
		}
		time.Sleep(time.Minute) // on the synctest clock
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

// except returns a predicate for Pause that matches the given keys.
func except(keys ...event.Key) func(event.Key) bool {
	return func(k event.Key) bool { return slices.Contains(keys, k) }
}

// TestMatchingKeysAreHandedOutInAPause verifies that keys that match the predicate are handed out,
// even if an earlier pause parked them.
func TestMatchingKeysAreHandedOutInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Pause(except())
		for n := range 20 { // more keys than workers
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
		drained := drain(t, q)
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

// TestResumeDuringTheHandOut verifies that a key is handed out if the pause ends after the key left the
// queue and before it is parked.
func TestResumeDuringTheHandOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := testQueue(), &recorder{}
		start(t, q, r.handle)
		q.Pause(func(event.Key) bool { q.Resume(); return false })
		q.Add(key(1))
		synctest.Wait()
		if got := r.handed(); got != 1 || q.Delayed() != 0 {
			t.Fatalf("handed out %d times with %d kept, want once and none", got, q.Delayed())
		}
		r.finish(key(1), Result{})
	})
}
