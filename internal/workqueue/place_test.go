package workqueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFind verifies that Find returns the right place for a key in each of its states.
func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := Limit{Keys: 1}
		q, r := New(Config{Workers: 1, MaxInFlight: one, MaxLowPriorityInFlight: one, BaseDelay: time.Second, MaxDelay: time.Second}), &recorder{}
		find := func(n int, want Place, failures int) {
			t.Helper()
			synctest.Wait()
			if at, failed := q.Find(key(n)); at != want || failed != failures {
				t.Errorf("key %d is %q after %d failures, want %q and %d", n, at, failed, want, failures)
			}
		}
		find(1, "", 0)
		start(t, q, r.handle)
		q.Add(key(1))
		find(1, InFlight, 0)
		q.Add(key(1)) // handed out again afterwards
		find(1, InFlight, 0)
		q.Add(key(2))
		find(2, Queued, 0)
		r.finish(key(1), Result{})
		find(2, InFlight, 0)
		find(1, Queued, 0)
		r.finish(key(2), Result{Err: errors.New("refused")})
		find(2, BackOff, 1)
		q.Pause(except())
		time.Sleep(2 * time.Second) // on the synctest clock
		r.finish(key(1), Result{})
		find(1, "", 0)
		find(2, Parked, 1)
		q.Resume()
		find(2, InFlight, 1)
		r.finish(key(2), Result{})
		find(2, "", 0)
	})
}

// TestFindLowPriority verifies that Find locates low-priority keys in the queue and in the backlog.
func TestFindLowPriority(t *testing.T) {
	q := testQueue()
	for n := range maxStaged + 1 {
		q.AddLowPriority(key(n))
	}
	for n, want := range map[int]Place{0: QueuedLowPriority, maxStaged: QueuedLowPriority, maxStaged + 1: ""} {
		if at, _ := q.Find(key(n)); at != want {
			t.Errorf("key %d is %q, want %q", n, at, want)
		}
	}
	q.Add(key(maxStaged))
	if at, _ := q.Find(key(maxStaged)); at != Queued {
		t.Errorf("after a change it is %q, want %q", at, Queued)
	}
}

// TestBackground verifies that Background counts each low-priority key once, from the first key
// until none waits.
func TestBackground(t *testing.T) {
	q := testQueue()
	check := func(what string, wantAdded, wantWaiting int64) {
		t.Helper()
		if added, waiting := q.Background(); added != wantAdded || waiting != wantWaiting {
			t.Errorf("%s: %d added, %d waiting, want %d and %d", what, added, waiting, wantAdded, wantWaiting)
		}
	}
	check("at the start", 0, 0)
	const n = maxStaged + 10
	for i := range n {
		q.AddLowPriority(key(i))
	}
	q.AddLowPriority(key(0))
	q.AddLowPriority(key(n - 1))
	check("added", n, n)
	q.Add(key(n - 1))
	check("one has changed", n, n-1)
	for i := range n - 1 {
		q.Add(key(i))
	}
	check("all have changed", n, 0)
	q.AddLowPriority(key(n))
	check("added later", 1, 1)
}

// TestBackgroundAfterAPause verifies that Background reports no more keys as waiting than as added. The
// keys that a pause had parked wait again after it.
func TestBackgroundAfterAPause(t *testing.T) {
	q := testQueue()
	q.AddLowPriority(key(0))
	q.Pause(except())
	q.processNext(t.Context(), nil) // parks the key, so no low-priority key waits
	q.AddLowPriority(key(1))
	q.Resume()
	if added, waiting := q.Background(); added != 1 || waiting != 1 {
		t.Errorf("%d added, %d waiting, want 1 and 1", added, waiting)
	}
}
