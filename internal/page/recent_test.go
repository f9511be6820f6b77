package page

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

var start = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC) // the start of a span

func key(name string) event.Key {
	return event.Key{Group: "apps", Resource: "deployments", Namespace: "shop", Name: name}
}

func TestRecentEvents(t *testing.T) {
	var r Recent
	if got := r.list(); got.Events == nil || len(got.Events) != 0 {
		t.Errorf("without events: %+v", got)
	}
	r.Add(key("web"), event.Updated, "812", start, start.Add(12*time.Millisecond+time.Microsecond))
	want := recentEvent{1, start.Add(12 * time.Millisecond), "updated", "deployments.apps", "shop", "web", "812", 0.012001}
	if got := r.list().Events; len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i := range 3 * keptEvents {
		r.Add(key(fmt.Sprint("web-", i)), event.Deleted, "813", start.Add(time.Hour), start)
	}
	got := r.list().Events
	if len(got) != keptEvents {
		t.Fatalf("%d events are kept, want %d", len(got), keptEvents)
	}
	for i, e := range got {
		if name := fmt.Sprint("web-", 3*keptEvents-1-i); e.Name != name || e.Number != uint64(3*keptEvents+1-i) || e.LagSeconds != 0 || e.Type != "deleted" {
			t.Fatalf("event %d from the end is %+v, want %s", i, e, name)
		}
	}
}

func TestRates(t *testing.T) {
	var r Recent
	add := func(at time.Time, lag time.Duration) { r.Add(key("web"), event.Updated, "1", at.Add(-lag), at) }
	add(start, time.Millisecond)
	add(start.Add(spanLength-time.Millisecond), time.Second)
	add(start.Add(spanLength), 20*time.Millisecond)
	add(start.Add(3*spanLength), 0)
	check := func(what string, now time.Time, published []int, slowest []float64) {
		t.Helper()
		got := r.rates(now)
		if got.Last != now.Unix()/5 || got.SpanSeconds != 5 || len(got.Published) != keptSpans || len(got.Slowest) != keptSpans {
			t.Errorf("%s: got %+v", what, got)
		}
		n := len(published)
		if !slices.Equal(got.Published[keptSpans-n:], published) || !slices.Equal(got.Slowest[keptSpans-n:], slowest) {
			t.Errorf("%s: got %v and %v, want %v and %v", what, got.Published[keptSpans-n:], got.Slowest[keptSpans-n:], published, slowest)
		}
	}
	check("now", start.Add(3*spanLength), []int{0, 2, 1, 0, 1}, []float64{0, 1, 0.02, 0, 0})
	check("later", start.Add(4*spanLength), []int{2, 1, 0, 1, 0}, []float64{1, 0.02, 0, 0, 0})
	check("much later", start.Add(2*keptSpans*spanLength), make([]int, keptSpans), make([]float64, keptSpans))
	add(start.Add(keptSpans*spanLength), 0) // replaces the first span in the ring
	check("after a full turn", start.Add(keptSpans*spanLength), []int{0, 1}, []float64{0, 0})
}

// TestAddIsCheap verifies that Add allocates no memory, because the forwarder calls it for each event.
func TestAddIsCheap(t *testing.T) {
	r, k := new(Recent), key("web")
	if n := testing.AllocsPerRun(100, func() { r.Add(k, event.Updated, "1", start, start) }); n > 0 {
		t.Errorf("%v allocations for each event", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	r, k := new(Recent), key("web")
	b.ReportAllocs()
	for b.Loop() {
		r.Add(k, event.Updated, "1", start, start)
	}
}
