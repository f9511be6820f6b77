package simulate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSimulate runs 10,000 histories on each bus, or as many as fit into ten seconds. The maximum
// keeps a fast machine from running other seeds. "make simulate" runs more histories.
func TestSimulate(t *testing.T) {
	for _, sink := range []Sink{NATS, Kafka} {
		t.Run(string(sink), func(t *testing.T) {
			r := Range{Sink: sink, First: 1, Seeds: 10_000, Time: 10 * time.Second}.Run()
			t.Logf("%d histories with %d steps and %d events each", r.Histories, r.Steps/r.Histories, r.Events/r.Histories)
			if r.Failed != nil {
				t.Errorf("seed %d: %v\n%s", r.Failed.Seed, r.Failed.Wrong, strings.Join(Shrink(*r.Failed), "\n"))
			}
		})
	}
}

// TestReplay verifies that a seed determines its history, and that its story is reproducible.
func TestReplay(t *testing.T) {
	for n := range uint64(400) {
		sink, seed := []Sink{NATS, Kafka}[n%2], n/2
		first, second := Run(sink, seed), Run(sink, seed)
		if !slices.Equal(first.trace, second.trace) || first.Events != second.Events {
			t.Fatalf("seed %d has two histories", seed)
		}
		var one, other []string
		replayOf(sink, seed, first.trace, false, &one)
		replayOf(sink, seed, first.trace, false, &other)
		if !slices.Equal(one, other) || len(one) < len(first.trace) {
			t.Fatalf("seed %d has two stories", seed)
		}
	}
}
