package torture

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTorture runs the seeds of the first round on every bus, which have every kind
// of fault once, and then some with replicas. SINK=kafka in the environment takes the one
// bus, REPLICAS=3 so many forwarders that elect a leader, or 0 for none such, SEEDS=n runs
// the seeds 1 to n, SEED=n the one.
func TestTorture(t *testing.T) {
	all, err := chosenRounds(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range all {
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
	chosen := os.Getenv("SEED") + os.Getenv("SINK") + os.Getenv("REPLICAS")
	if chosen == "" && (told.Load() == 0 || patched.Load() == 0) {
		t.Errorf("%d events said what has changed, %d had a patch: that was not tested", told.Load(), patched.Load())
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
		t.Errorf("%v\n\n%s\nRun it again: make torture SINK=%s REPLICAS=%d SEED=%d", err, p, p.settings.sink, p.settings.replicas, p.seed)
		w.showLogs()
	}
	return r
}

// chosenRounds are without a choice those of each bus, and one with replicas of each.
func chosenRounds(getenv func(string) string) ([]round, error) {
	usual := []round{{onNATS, 0}, {onKafka, 0}, {onNATS, 2}, {onKafka, 3}}
	var chosen []round
	for _, r := range rounds {
		on, replicas := getenv("SINK"), getenv("REPLICAS")
		if (on == "" || on == string(r.sink)) && (replicas == fmt.Sprint(r.replicas) || replicas == "" && slices.Contains(usual, r)) {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("SINK=%s REPLICAS=%s: there are %v", getenv("SINK"), getenv("REPLICAS"), rounds)
	}
	return chosen, nil
}

func (r round) chosenSeeds(getenv func(string) string) ([]uint64, error) {
	first, last := uint64(1), r.firstRound()
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
