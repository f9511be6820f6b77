package torture

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTorture_Slow runs plans with random faults. By default it runs the seeds that together have every
// kind of fault once on every bus, some seeds with replicas, and some seeds with a foreign writer.
// Environment variables choose other runs:
//
//   - SINK=kafka or SINK=nats: only this bus
//   - REPLICAS=3: only runs with this many forwarders and leader election; 0 for runs without
//   - FOREIGN=1: only runs with a foreign writer
//   - CLUSTER=3: only runs whose bus is a cluster of this many servers
//   - SEEDS=20: the seeds 1 to 20
//   - SEED=17: only this seed. SEED=17,4: these seeds in this order
//   - SHARD=2/3: every third of these seeds, from the second on, to divide them among processes
//   - FAULT=name: only this kind of fault
//   - BUG=name: the forwarder has this planted bug
func TestTorture_Slow(t *testing.T) {
	all, err := chosenRounds(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range all {
		seeds, err := on.chosenSeeds(os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		done, err := loadResults(on)
		if err != nil {
			t.Fatal(err)
		}
		var before []uint64 // the earlier seeds of this process
		for _, seed := range seeds {
			if _, is := done[seed]; is {
				continue
			}
			p := newPlan(on, seed, os.Getenv("FAULT"))
			r, ran := result{Round: on.String(), Seed: seed, Faults: p.faults}, false
			passed := t.Run(fmt.Sprintf("%s/%d", on, seed), func(t *testing.T) {
				ran = true
				t.Cleanup(func() { // runs after all cleanups of the world
					if t.Failed() {
						t.Log(p.repeat(before, os.Getenv))
					}
				})
				r = torture(t, p)
			})
			if !ran {
				continue // excluded by -run
			}
			before = append(before, seed)
			r.Failed = !passed
			done[seed] = r
			if err := saveResult(r); err != nil {
				t.Error(err)
			}
		}
		if *reportTo == "" || len(done) == 0 {
			continue
		}
		if err := writeReport(*reportTo, on, slices.Collect(maps.Values(done))); err != nil {
			t.Error(err)
		}
	}
	chosen := os.Getenv("SEED") + os.Getenv("SINK") + os.Getenv("REPLICAS") + os.Getenv("FOREIGN") + os.Getenv("CLUSTER")
	if chosen == "" && (told.Load() == 0 || patched.Load() == 0) {
		t.Errorf("%d events listed their changes, and %d had a patch, so the checks of changes tested nothing", told.Load(), patched.Load())
	}
}

// torture executes a plan.
func torture(t *testing.T, p *plan) result {
	began := time.Now()
	w := newWorld(t, p.settings, os.Getenv("BUG"))
	over, err := w.performBeside(t.Context(), p)
	if err == nil {
		err = w.check(t.Context(), settle)
	}
	settled := time.Since(over)
	if err == nil {
		window := quickWindow
		if os.Getenv("SEED")+os.Getenv("SEEDS") != "" {
			window = restWindow
		}
		err = w.rest(t.Context(), window)
	}
	if err == nil {
		err = w.compareTables(t.Context())
	}
	r := w.record(p)
	r.Settled, r.Took = settled, time.Since(began)
	t.Logf("%s: %.1f s, settled in %.1f s; %d changes, %d messages, %d starts, %d killed",
		strings.Join(p.faults, ", "), r.Took.Seconds(), r.Settled.Seconds(), r.Changes, r.Published, r.Starts, r.Killed)
	if p.settings.foreign {
		t.Logf("%d foreign messages, %d refused by the bus; the memory of a forwarder peaked at %d MiB", r.Foreign, w.foreign.refused, r.Peak>>20)
	}
	if os.Getenv("FAULT") != "" && err == nil {
		t.Log(p)
	}
	if err != nil {
		t.Log(p)
		w.showLogs()
		t.Error(err) // last, so that it is at the end of the output
	}
	return r
}

// repeat returns the commands that repeat a failing seed: by itself, and after the earlier seeds of
// the process, which shared its control plane.
func (p *plan) repeat(before []uint64, getenv func(string) string) string {
	command := fmt.Sprintf("make torture SINK=%s REPLICAS=%d", p.settings.sink, p.settings.replicas)
	for _, name := range []string{"FOREIGN", "CLUSTER", "FAULT", "BUG"} {
		if value := getenv(name); value != "" {
			command += fmt.Sprintf(" %s=%q", name, value)
		}
	}
	text := fmt.Sprintf("seed %d over %s with %d replicas failed: %s\nRun it again: %s SEED=%d",
		p.seed, p.settings.sink, p.settings.replicas, strings.Join(p.faults, ", "), command, p.seed)
	if len(before) > 0 {
		var seeds []string
		for _, seed := range before {
			seeds = append(seeds, fmt.Sprint(seed))
		}
		text += fmt.Sprintf("\nIf it passes by itself: %s SEED=%s,%d", command, strings.Join(seeds, ","), p.seed)
	}
	return text
}

// chosenRounds returns the rounds that the environment selects. By default, each bus has a round
// without replicas, a round with replicas, and a round with a foreign writer.
func chosenRounds(getenv func(string) string) ([]round, error) {
	usual := []round{{onNATS, 0, false, 0}, {onKafka, 0, false, 0}, {onNATS, 2, false, 0}, {onKafka, 3, false, 0}, {onNATS, 0, true, 0}, {onKafka, 0, true, 0}}
	on, replicas, foreign, servers := getenv("SINK"), getenv("REPLICAS"), getenv("FOREIGN"), getenv("CLUSTER")
	var chosen []round
	for _, r := range rounds {
		if on+replicas+foreign+servers != "" && (r.foreign != (foreign != "") || cmp.Or(servers, "0") != fmt.Sprint(r.cluster)) {
			continue
		}
		if (on == "" || on == string(r.sink)) && (replicas == fmt.Sprint(r.replicas) || replicas == "" && slices.Contains(usual, r)) {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("SINK=%s REPLICAS=%s FOREIGN=%s CLUSTER=%s: there are %v", on, replicas, foreign, servers, rounds)
	}
	return chosen, nil
}

// chosenSeeds returns the seeds that the environment selects, in the order in which this process
// runs them.
func (r round) chosenSeeds(getenv func(string) string) ([]uint64, error) {
	var seeds []uint64
	for seed := range r.firstRound() {
		seeds = append(seeds, seed+1)
	}
	if text := getenv("SEEDS"); text != "" {
		last, err := parseSeeds(text)
		if err != nil || len(last) != 1 {
			return nil, errors.Join(fmt.Errorf("SEEDS=%q: want a positive number", text), err)
		}
		seeds = seeds[:0]
		for seed := range last[0] {
			seeds = append(seeds, seed+1)
		}
	}
	if text := getenv("SEED"); text != "" {
		var err error
		if seeds, err = parseSeeds(text); err != nil {
			return nil, fmt.Errorf("SEED=%q: want positive numbers, such as 20,22: %w", text, err)
		}
	}
	shard, of := 1, 1
	if text := getenv("SHARD"); text != "" {
		if _, err := fmt.Sscanf(text, "%d/%d", &shard, &of); err != nil || shard < 1 || shard > of {
			return nil, errors.Join(fmt.Errorf("SHARD=%q: want one such as 2/3", text), err)
		}
	}
	var mine []uint64
	for n := shard - 1; n < len(seeds); n += of {
		mine = append(mine, seeds[n])
	}
	return mine, nil
}

// parseSeeds parses a list of positive numbers, separated by commas.
func parseSeeds(text string) (seeds []uint64, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("0 is not a seed")
		}
		seeds = append(seeds, n)
	}
	return seeds, nil
}
