package torture

import (
	"slices"
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for n := 0; n < len(pairs); n += 2 {
			if pairs[n] == name {
				return pairs[n+1]
			}
		}
		return ""
	}
}

func TestChosenSeeds(t *testing.T) {
	for _, test := range []struct {
		env  []string
		want []uint64 // nil for an error
	}{
		{[]string{"SEEDS", "4"}, []uint64{1, 2, 3, 4}},
		{[]string{"SEEDS", "7", "SHARD", "2/3"}, []uint64{2, 5}},
		{[]string{"SEED", "17"}, []uint64{17}},
		{[]string{"SEED", "20,22"}, []uint64{20, 22}},
		{[]string{"SEED", "20,22,3", "SHARD", "1/2"}, []uint64{20, 3}},
		{[]string{"SEED", "0"}, nil},
		{[]string{"SEED", "20,"}, nil},
		{[]string{"SEEDS", "1,2"}, nil},
		{[]string{"SEEDS", "-1"}, nil},
		{[]string{"SHARD", "3/2"}, nil},
	} {
		got, err := (round{onNATS, 0, false, 0}).chosenSeeds(environment(test.env...))
		if (err != nil) != (test.want == nil) || !slices.Equal(got, test.want) {
			t.Errorf("%q: got %d and error %v, want %d", test.env, got, err, test.want)
		}
	}
	for _, of := range rounds {
		got, err := of.chosenSeeds(environment())
		if err != nil || uint64(len(got)) != of.firstRound() || got[0] != 1 {
			t.Errorf("%s: got %d and error %v, want the first %d", of, got, err, of.firstRound())
		}
	}
}

// TestRepeat verifies that a failing seed prints the commands that repeat it.
func TestRepeat(t *testing.T) {
	p := newPlan(round{onKafka, 3, false, 0}, 22, "")
	text := p.repeat([]uint64{18, 20}, environment("FAULT", "leader killed"))
	for _, want := range []string{
		"seed 22 over kafka with 3 replicas failed: " + p.faults[0],
		"Run it again: make torture SINK=kafka REPLICAS=3 FAULT=\"leader killed\" SEED=22\n",
		"If it passes by itself: make torture SINK=kafka REPLICAS=3 FAULT=\"leader killed\" SEED=18,20,22",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if text := p.repeat(nil, environment()); strings.Contains(text, "by itself") || strings.Contains(text, "FAULT") {
		t.Errorf("got %q of the first seed", text)
	}
}
