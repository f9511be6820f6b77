package workqueue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

// handedOut gives the names in the order in which one worker gets them.
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
	return New(Config{Workers: 1, MaxInFlight: 1, MaxBehind: 1, BaseDelay: time.Second, MaxDelay: time.Second})
}

// TestWhatHasChangedGoesFirst: also where it waited already, and each key once.
func TestWhatHasChangedGoesFirst(t *testing.T) {
	q := oneWorker()
	for _, name := range []string{"a", "b", "c", "d"} {
		q.AddBehind(named(name))
	}
	q.Add(named("x"))
	q.Add(named("c"))       // goes over
	q.AddBehind(named("x")) // does not
	q.AddBehind(named("a")) // is there
	if got := q.Len(); got != 5 {
		t.Errorf("%d wait, want 5", got)
	}
	if got, want := handedOut(t, q, 5, nil), []string{"x", "c", "a", "b", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWhatCanWaitStaysBehindAfterAPause: an outage in a first sync does not make its keys
// changes.
func TestWhatCanWaitStaysBehindAfterAPause(t *testing.T) {
	const keys = 20
	for name, outage := range map[string]func(q *Queue){
		"a pause": func(q *Queue) {
			q.Pause(func(event.Key) bool { return false })
			for range keys {
				key, _ := q.queue.Get()
				if !q.park(key) {
					t.Error("not parked")
				}
				q.queue.Done(key)
			}
			q.Resume()
		},
		"failures": func(q *Queue) {
			for range keys {
				key, _ := q.queue.Get()
				q.inFlight.enter(canWait)
				q.complete(key, canWait, Result{Err: context.Canceled})
			}
			q.RetryNow()
		},
		"a further step": func(q *Queue) {
			for range keys {
				key, _ := q.queue.Get()
				q.inFlight.enter(canWait)
				q.complete(key, canWait, Result{Again: true})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := New(Config{Workers: 1, MaxInFlight: keys, MaxBehind: keys, BaseDelay: time.Hour, MaxDelay: time.Hour})
			for n := range keys {
				q.AddBehind(named(fmt.Sprint(n)))
			}
			outage(q)
			q.Add(named("live"))
			if got := handedOut(t, q, keys+1, nil); got[0] != "live" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestAChangeWhileAKeyIsHandled: it comes again, before those that can wait, whatever is
// said of it after that.
func TestAChangeWhileAKeyIsHandled(t *testing.T) {
	q := oneWorker()
	for _, name := range []string{"a", "b", "c"} {
		q.AddBehind(named(name))
	}
	first := true
	got := handedOut(t, q, 4, func(name string) {
		if name == "a" && first {
			first = false
			q.Add(named("a"))
			q.AddBehind(named("a"))
		}
	})
	if want := []string{"a", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWhatCanWaitIsNotForgotten: there may always be something that has changed.
func TestWhatCanWaitIsNotForgotten(t *testing.T) {
	q := oneWorker()
	q.AddBehind(named("first"))
	q.AddBehind(named("second"))
	q.Add(named("x0"))
	n := 0
	got := handedOut(t, q, 2*(longestRow+1), func(name string) {
		if name[0] == 'x' {
			n++
			q.Add(named(fmt.Sprintf("x%d", n)))
		}
	})
	if slices.Index(got, "first") != longestRow || slices.Index(got, "second") != 2*longestRow+1 {
		t.Errorf("got %q", got)
	}
}

// TestLanes: every key that is pushed is popped once, whatever goes over meanwhile.
func TestLanes(t *testing.T) {
	l := newLanes()
	const keys = 5000
	want := map[string]int{}
	for round := range 3 {
		for n := range keys {
			name := fmt.Sprint(n)
			k := unique.Make(named(name))
			l.expect(k, lane((n+round)%2))
			if p := l.keys[k]; !p.queued {
				l.Push(k)
				want[name]++
			}
			if n%3 == 0 {
				l.expect(k, changed)
			}
			if n%4 == 0 {
				popped := l.Pop()
				want[popped.Value().Name]--
				l.done(popped)
			}
		}
	}
	for l.Len() > 0 {
		popped := l.Pop()
		want[popped.Value().Name]--
		l.done(popped)
	}
	for name, n := range want {
		if n != 0 {
			t.Errorf("%s: pushed %d times more than popped", name, n)
		}
	}
	for _, line := range l.lines {
		if len(l.keys) != 0 {
			t.Fatalf("%d keys are remembered", len(l.keys))
		}
		for line.len() > 0 { // only what went over is left
			line.pop()
		}
		if line.items != nil {
			t.Error("an empty line keeps memory")
		}
	}
}
