package simulate

import (
	"maps"
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
			r := Range{Sink: sink, First: Seed(1), Seeds: 10_000, Time: 10 * time.Second}.Run()
			t.Logf("%d histories with %d steps and %d events each", r.Histories, r.Steps/r.Histories, r.Events/r.Histories)
			if r.Failed != nil {
				t.Errorf("seed %s: %v\n%s", r.Failed.Path, r.Failed.Wrong, strings.Join(Shrink(*r.Failed), "\n"))
			}
		})
	}
}

// TestReplay verifies that a path determines its history, and that its story is reproducible.
func TestReplay(t *testing.T) {
	for n := range uint64(400) {
		sink, path := []Sink{NATS, Kafka}[n%2], Seed(n/2)
		if n%4 > 1 {
			path = append(path, Branch{40, n}, Branch{90, n + 1})
		}
		first, second := Run(sink, path), Run(sink, path)
		if !slices.Equal(first.trace, second.trace) || first.Events != second.Events {
			t.Fatalf("%s has two histories", path)
		}
		var one, other []string
		replayOf(sink, path, first.trace, false, &one)
		replayOf(sink, path, first.trace, false, &other)
		if !slices.Equal(one, other) || len(one) < len(first.trace) {
			t.Fatalf("%s has two stories", path)
		}
	}
}

// TestPath verifies that a history with branches has the steps of the earlier branch up to the first
// step of the later one, and that its path has one text.
func TestPath(t *testing.T) {
	seed, path := Seed(17), Path{{Seed: 17}, {120, 4711}}
	if got, err := ParsePath(path.String()); err != nil || path.String() != "17/120:4711" || !slices.Equal(got, path) {
		t.Errorf("%s is read as %s, %v", path, got, err)
	}
	for _, text := range []string{"", "x", "1:2", "17/4711", "17/0:1", "17/20:1/20:2", "17/20:", "17/"} {
		if got, err := ParsePath(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
	before, after := Run(NATS, seed).trace, Run(NATS, path).trace
	if !slices.Equal(before[:120], after[:120]) || slices.Equal(before[120:200], after[120:200]) {
		t.Error("the branch does not begin after step 120")
	}
}

// TestExplore verifies that an explorer branches off from a history at its last new situation, and that
// one job reproduces its paths.
func TestExplore(t *testing.T) {
	e := newExplorer(0)
	at := func(tombstones int) situation { return situation{tombstones: tombstones} }
	e.learn(Seed(1), map[situation]int{at(0): 30, at(1): 50, at(2): 40})
	e.learn(Seed(2), map[situation]int{at(0): 20, at(1): 60})       // nothing new
	e.learn(Path{{Seed: 1}, {50, 3}}, map[situation]int{at(3): 50}) // nothing new since the branch
	e.learn(Path{{Seed: 1}, {50, 4}}, map[situation]int{{label: true}: 90})
	got := map[string]bool{}
	for range 100 {
		got[e.choose(Seed(5)).String()] = true
	}
	if want := map[string]bool{"5": true, "1/50:5": true, "1/50:4/90:5": true}; !maps.Equal(got, want) {
		t.Errorf("chose %v, want %v", got, want)
	}

	for _, sink := range []Sink{NATS, Kafka} {
		explore := func() (paths []string, branches int) {
			e, r := newExplorer(0), Range{Sink: sink, First: Seed(0), Explore: true}
			for seed := range uint64(100) {
				h := r.one(seed, e)
				paths, branches = append(paths, h.Path.String()), branches+len(h.Path)-1
				if again := Run(sink, h.Path); !slices.Equal(h.trace, again.trace) {
					t.Errorf("%s: the explored history and its replay differ", h.Path)
				}
			}
			return paths, branches
		}
		first, branches := explore()
		if second, _ := explore(); !slices.Equal(first, second) {
			t.Errorf("the same seeds led to the paths %v and %v", first, second)
		}
		if branches < 100 {
			t.Errorf("%s: 100 histories have %d branches", sink, branches)
		}
	}
}
