package torture

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestTorture runs the seeds of the first round, which have every kind of fault
// once. SEEDS=n in the environment runs the seeds 1 to n, SEED=n the one.
func TestTorture(t *testing.T) {
	seeds, err := chosenSeeds(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPlan(seed)
			start := time.Now()
			w := newWorld(t, p.settings)
			made := time.Now()
			err := w.perform(t.Context(), p)
			performed := time.Now()
			if err == nil {
				err = w.check(t.Context(), settle)
			}
			settled := time.Now()
			t.Logf("%v made %.1f s, performed %.1f s, settled %.1f s, changes %d", p.faults, made.Sub(start).Seconds(), performed.Sub(made).Seconds(), settled.Sub(performed).Seconds(), w.user.changes.Load())
			if err != nil {
				t.Errorf("%v\n\n%s\nRun it again: make torture SEED=%d", err, p, seed)
				w.showLogs()
			}
		})
	}
}

func chosenSeeds(getenv func(string) string) ([]uint64, error) {
	first, last := uint64(1), firstRound()
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
