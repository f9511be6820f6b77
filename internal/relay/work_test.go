package relay

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// TestMeasureResync verifies that the queued low-priority keys count as a resync if they are many.
func TestMeasureResync(t *testing.T) {
	r := &Relay{}
	if a, is := r.measureResync(); is {
		t.Errorf("outside of a term: %+v", a)
	}
	limit := workqueue.Limit{Keys: 10, Bytes: 1 << 20}
	q := workqueue.New(workqueue.Config{Workers: 1, MaxInFlight: limit, MaxLowPriorityInFlight: limit, BaseDelay: time.Second, MaxDelay: time.Second})
	r.term.Store(&term{Relay: r, queue: q})
	key := func(n int) event.Key { return event.Key{Resource: "pods", Namespace: "default", Name: fmt.Sprint(n)} }
	for n := range minResync - 1 {
		q.AddLowPriority(key(n))
	}
	if a, is := r.measureResync(); is {
		t.Errorf("a few keys count as a resync: %+v", a)
	}
	q.AddLowPriority(key(minResync))
	for n := range 100 {
		q.Add(key(n)) // the object changed
	}
	if a, is := r.measureResync(); !is || a != (longwork.Amount{Done: 100, Total: minResync}) {
		t.Errorf("got %+v, %v", a, is)
	}
	for n := range minResync + 1 {
		q.Add(key(n))
	}
	if a, is := r.measureResync(); is {
		t.Errorf("changed keys count as a resync: %+v", a)
	}
}

// TestMeasureResend verifies that changes of the second in which an outage ended do not count as resent
// changes. In an earlier version, they made the number of resent changes negative.
func TestMeasureResend(t *testing.T) {
	tm := newTestTerm(&bus.Bus{Bus: &silent{}}, 0, slog.New(slog.DiscardHandler))
	tm.term.Store(tm)
	tm.outage.Store(&outage{began: time.Unix(10, 0), ended: time.Unix(20, 0), waiting: 2})
	for n := range 5 {
		k := configMapKey(fmt.Sprint(n))
		tm.ledger.Observe(k, nil, shows{}.Lookup(k).Live, event.CauseWatch, false, time.Unix(20, 0))
	}
	if a, is := tm.measureResend(); !is || a != (longwork.Amount{Done: 0, Total: 2}) {
		t.Errorf("got %+v, %v", a, is)
	}
}

// TestMeasureBefore verifies that no long work is reported before it begins.
func TestMeasureBefore(t *testing.T) {
	r := &Relay{}
	for _, w := range r.longWork() {
		if a, is := w.Measure(); is {
			t.Errorf("%s: %+v", w.Name, a)
		}
	}
	r.loading.Begin()
	r.loading.Left(3, 4)
	for _, w := range r.longWork() {
		if a, is := w.Measure(); is != (w.Name == "checkpoint_load") || is && (a.Done != 3 || a.Total != 7) {
			t.Errorf("%s: %+v, %v", w.Name, a, is)
		}
	}
}
