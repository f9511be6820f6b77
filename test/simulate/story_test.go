package simulate

import (
	"slices"
	"strings"
	"testing"
)

// TestStories verifies that the actions of each story are still possible, and that the history breaks no
// promise. The failure "no longer possible" means that the models have changed. Then find the bug of the
// story again (see TestPlantedBugs_Slow), and save the new story.
func TestStories(t *testing.T) {
	for _, s := range allStories() {
		t.Run(s.name, func(t *testing.T) {
			w := s.setup.world(s.sink, Seed(1), newRNG(1), variation{actions: s.actions})
			defer w.close()
			for _, a := range s.actions {
				if w.findOffers(); !w.isPossible(&a) {
					t.Fatalf("no longer possible, after %d of %d actions: %s", len(w.trace), len(s.actions), a)
				}
				w.do(a)
			}
			if w.settle(); w.wrong != nil {
				t.Error(w.wrong)
			}
		})
	}
}

// TestStoryOfALog verifies that parseStory reads the log of a history as the same setup and actions.
func TestStoryOfALog(t *testing.T) {
	for seed := range uint64(200) {
		sink := []Sink{NATS, Kafka}[seed%2]
		h := Run(sink, Seed(seed))
		var log []string
		w := replayOf(sink, h.Path, h.trace, false, &log)
		s, err := parseStory(strings.Join(log, "\n"))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s.sink != sink || s.setup != w.setup || !slices.Equal(s.actions, w.trace) {
			t.Fatalf("seed %d: the story differs from the history", seed)
		}
	}
	for _, text := range []string{
		"", "# only a comment", "the user creates a", "on nats", strings.Replace(setup{}.text(NATS), "objects", "things", 1) + "\nthe user creates a",
		setup{}.text(NATS), setup{}.text(NATS) + "\nthe user creates d", setup{}.text(NATS) + "\nthe user creates a (variant x)", setup{}.text(NATS) + "\nthe user creates a (variant 1) again",
	} {
		if s, err := parseStory(text); err == nil {
			t.Errorf("parseStory(%q) returned %+v, want an error", text, s)
		}
	}
}
