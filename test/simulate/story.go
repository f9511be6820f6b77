package simulate

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"sync"
)

// story is the text form of a history: its setup and its actions. The result of [Shrink] is a story.
type story struct {
	name    string
	sink    Sink
	setup   setup
	actions []action
}

// stories contains shrunk histories that failed before a fix, or because of a planted bug. Random choices rarely
// lead to these situations, so the generator repeats the stories with variations.
//
//go:embed stories/*.txt
var stories embed.FS

var allStories = sync.OnceValue(func() (all []story) {
	files, err := stories.ReadDir("stories")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		text, err := stories.ReadFile(path.Join("stories", f.Name()))
		if err != nil {
			panic(err)
		}
		s, err := parseStory(string(text))
		if err != nil {
			panic(fmt.Errorf("stories/%s: %w", f.Name(), err))
		}
		s.name = strings.TrimSuffix(f.Name(), ".txt")
		all = append(all, s)
	}
	return all
})

func storiesOn(sink Sink) (on []story) {
	for _, s := range allStories() {
		if s.sink == sink {
			on = append(on, s)
		}
	}
	return on
}

// setupFormat is the first line of a story.
const setupFormat = "on %s with %d objects, %d writers, foreign=%t, elects=%t, namespaces=%t, messages=%d, configuration=%d, tombstones=%t, partitions=%d+%d"

func (s setup) text(sink Sink) string {
	return fmt.Sprintf(setupFormat, sink, s.objects, s.writers, s.foreign, s.elects, s.spaces, s.perSubject, s.configuration, s.tombstones, s.partitions, s.checkpoint)
}

// parseStory parses a story. It ignores empty lines, comments, and indented lines, which describe the effects of
// actions.
func parseStory(text string) (s story, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || line[0] == ' ' || line[0] == '#':
		case s.sink == "":
			of := &s.setup
			if _, err := fmt.Sscanf(line, setupFormat, &s.sink, &of.objects, &of.writers, &of.foreign, &of.elects, &of.spaces, &of.perSubject, &of.configuration, &of.tombstones, &of.partitions, &of.checkpoint); err != nil {
				return s, fmt.Errorf("%q: want %q: %w", line, setupFormat, err)
			}
		default:
			a, ok := parseAction(line)
			if !ok {
				return s, fmt.Errorf("%q is not an action", line)
			}
			s.actions = append(s.actions, a)
		}
	}
	if len(s.actions) == 0 {
		return s, fmt.Errorf("no actions")
	}
	return s, nil
}

// actionOf maps the text of each action to the action, without its variant.
var actionOf = sync.OnceValue(func() map[string]action {
	all := map[string]action{}
	for k := range kinds {
		for slot := range int8(maxProcesses + 1) {
			for _, object := range []int8{none, 0, 1, 2, loading, reconciler, retention, resolver, takingOver} {
				a := action{kind: k, slot: slot - 1, object: object}
				all[a.String()] = a
			}
		}
	}
	return all
})

// parseAction is the inverse of action.String.
func parseAction(text string) (action, bool) {
	text, variant, hasVariant := strings.Cut(text, " (variant ")
	a, ok := actionOf()[text]
	if hasVariant {
		n, err := strconv.ParseUint(strings.TrimSuffix(variant, ")"), 10, 8)
		a.arg, ok = uint8(n), ok && err == nil
	}
	return a, ok
}

// variation is the part of a story that a history has yet to follow, and how the history departs from it.
type variation struct {
	story   string // the name of the story
	actions []action
	dropped int  // the probability, in 64ths, that an action is skipped
	added   int  // the probability, in 64ths, that a random action comes next
	ends    bool // the history ends with the story
}

func (s story) variation(rng *rand.Rand) variation {
	v := variation{story: s.name, actions: s.actions, dropped: []int{0, 1, 4}[rng.IntN(3)], added: []int{0, 2, 8}[rng.IntN(3)], ends: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		v.actions = v.actions[:rng.IntN(len(v.actions)+1)]
	}
	return v
}

// isOver reports whether the history ends because its story has ended.
func (v *variation) isOver() bool { return v.ends && len(v.actions) == 0 }

// nextOfStory returns the next possible action of the story. It returns false if the story has ended, or if a random
// action comes next.
func (w *world) nextOfStory() (action, bool) {
	v := &w.variation
	for len(v.actions) > 0 && w.rng.IntN(64) >= v.added {
		a := v.actions[0]
		v.actions = v.actions[1:]
		if w.rng.IntN(64) >= v.dropped && w.isPossible(&a) {
			return a, true
		}
	}
	return action{}, false
}
