package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// settings are what a run is to do.
type settings struct {
	parts      []string
	contenders []string // keys; none for all
	pods       []int    // ascending
	rounds     int      // 0: by the number of pods
	out        string
}

// allParts: fill does no more than fill the clusters, which may take as long as all the rest.
var allParts = []string{"fill", "sync", "latency", "rate", "live", "publish"}

func readSettings(getenv func(string) string) (settings, error) {
	s := settings{parts: strings.Fields(getenv("BENCH")), out: getenv("OUT")}
	if len(s.parts) == 0 {
		s.parts = allParts
	}
	for _, p := range s.parts {
		if !slices.Contains(allParts, p) {
			return s, fmt.Errorf("BENCH has no part %q: name some of %s, with spaces between", p, strings.Join(allParts, " "))
		}
	}
	s.contenders = strings.Fields(getenv("CONTENDERS"))
	for _, key := range s.contenders {
		if !slices.ContainsFunc(contenders, func(c contender) bool { return c.key == key }) {
			return s, fmt.Errorf("CONTENDERS has no %q: name some of floor informer nats kafka stdout projection filter", key)
		}
	}
	numbers := strings.Fields(getenv("PODS"))
	if len(numbers) == 0 {
		numbers = []string{"20000", "100000"}
	}
	for _, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < liveObjects {
			return s, fmt.Errorf("PODS has %q: want whole numbers of at least %d, as in 20000, with spaces between", text, liveObjects)
		}
		s.pods = append(s.pods, n)
	}
	slices.Sort(s.pods)
	if text := getenv("ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return s, fmt.Errorf("ROUNDS is %q: want a number from 1", text)
		}
		s.rounds = n
	}
	if s.out != "" { // not after an hour
		if err := os.WriteFile(s.out, nil, 0o644); err != nil {
			return s, fmt.Errorf("OUT is to get the tables: %w", err)
		}
	}
	return s, nil
}

func (s settings) wants(part string) bool { return slices.Contains(s.parts, part) }

// has tells whether a contender takes part. The floor always does: it is what the others are
// measured by.
func (s settings) has(key string) bool {
	return key == "floor" || len(s.contenders) == 0 || slices.Contains(s.contenders, key)
}

// roundsOf is how often each contender runs. A round of many pods takes long, and its
// length evens out by itself what others do on the machine.
func (s settings) roundsOf(pods int) int {
	switch {
	case s.rounds > 0:
		return s.rounds
	case pods < 50_000:
		return 3
	default:
		return 1
	}
}
