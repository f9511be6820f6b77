package torture

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTorture runs the seeds of the first round on every bus, which have every kind
// of fault once. SINK=kafka in the environment takes the one bus, SEEDS=n runs the
// seeds 1 to n, SEED=n the one.
func TestTorture(t *testing.T) {
	for _, on := range sinks {
		if chosen := os.Getenv("SINK"); chosen != "" && chosen != string(on) {
			continue
		}
		seeds, err := on.chosenSeeds(os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		var results []result
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", on, seed), func(t *testing.T) { results = append(results, torture(t, newPlan(on, seed))) })
		}
		if *reportTo == "" || len(results) == 0 {
			continue
		}
		if err := writeReport(*reportTo, on, results); err != nil {
			t.Error(err)
		}
	}
}

// torture executes a plan.
func torture(t *testing.T, p *plan) result {
	began := time.Now()
	w := newWorld(t, p.settings)
	err := w.perform(t.Context(), p)
	over := time.Now()
	if err == nil {
		err = w.check(t.Context(), settle)
	}
	r := w.record(p)
	r.failed, r.settled, r.took = err != nil, time.Since(over), time.Since(began)
	t.Logf("%s: %.1f s, settled in %.1f s; %d changes, %d messages, %d starts, %d killed",
		strings.Join(p.faults, ", "), r.took.Seconds(), r.settled.Seconds(), r.changes, r.published, r.starts, r.killed)
	if err != nil {
		t.Errorf("%v\n\n%s\nRun it again: make torture SINK=%s SEED=%d", err, p, p.settings.sink, p.seed)
		w.showLogs()
	}
	return r
}

func (s sink) chosenSeeds(getenv func(string) string) ([]uint64, error) {
	first, last := uint64(1), s.firstRound()
	for name, set := range map[string]func(uint64){
		"SEED":  func(n uint64) { first, last = n, n },
		"SEEDS": func(n uint64) { last = n },
	} {
		text := getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			return nil, errors.Join(fmt.Errorf("%s=%q is no positive number", name, text), err)
		}
		set(n)
	}
	var seeds []uint64
	for seed := first; seed <= last; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds, nil
}
