package paging

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// list is the list of subjects of a server.
type list struct {
	subjects map[string]bool
	limit    int
	requests int
	before   func(request, offset int) // changes the list before a page is read; may be nil
}

func newList(limit, subjects int) *list {
	l := &list{subjects: map[string]bool{}, limit: limit}
	for i := range subjects {
		l.subjects[name(i)] = true
	}
	return l
}

func name(i int) string { return fmt.Sprintf("s-%06d", i) }

// page responds as nats-server 2.15 does (jsStreamInfoRequest in jetstream_api.go).
func (l *list) page(offset int) (Page, error) {
	if l.requests++; l.before != nil {
		l.before(l.requests, offset)
	}
	sorted := slices.Sorted(maps.Keys(l.subjects))
	if len(sorted) == 0 {
		return Page{}, nil
	}
	p := Page{Subjects: map[string]uint64{}, Limit: l.limit, Total: len(sorted)}
	for _, subject := range sorted[min(offset, len(sorted)):min(offset+l.limit, len(sorted))] {
		p.Subjects[strings.ToValidUTF8(subject, "\uFFFD")]++
	}
	return p, nil
}

// read returns how often each subject was found.
func (l *list) read() (found map[string]int, err error) {
	found = map[string]int{}
	err = Read(l.page, func(subject string) { found[subject]++ })
	return found, err
}

// TestRead verifies that Read finds every subject that is in the list all the time, exactly once, in
// a limited number of requests.
func TestRead(t *testing.T) {
	for _, test := range []struct {
		name            string
		limit, subjects int
		before          func(l *list, request, offset int)
		requests        int // maximum
	}{
		{name: "empty", limit: 10, requests: 1},
		{name: "one page", limit: 10, subjects: 10, requests: 1},
		{name: "two pages", limit: 1000, subjects: 1005, requests: 2}, // a quiet load must not become slower
		{name: "the smallest pages", limit: 2, subjects: 20, requests: 19},
		{name: "ten pages", limit: 1000, subjects: 9990, requests: 10},
		{name: "one added before the offset", limit: 10, subjects: 15, requests: 2, before: func(l *list, request, _ int) {
			if request == 2 {
				l.subjects["a"] = true
			}
		}},
		{name: "one added before each page", limit: 10, subjects: 95, requests: 15, before: func(l *list, request, _ int) {
			l.subjects[fmt.Sprintf("a-%03d", request)] = true
		}},
		{name: "one removed before the offset", limit: 10, subjects: 15, requests: 3, before: func(l *list, request, _ int) {
			if request == 2 {
				delete(l.subjects, name(0))
			}
		}},
		{name: "two removed before each page", limit: 10, subjects: 95, requests: 20, before: func(l *list, request, _ int) {
			delete(l.subjects, name(2*request))
			delete(l.subjects, name(2*request+1))
		}},
		{name: "most removed", limit: 10, subjects: 95, requests: 20, before: func(l *list, _, offset int) {
			for i := 0; offset > 50 && i < 90; i++ {
				delete(l.subjects, name(i))
			}
		}},
		{name: "all removed", limit: 10, subjects: 95, requests: 2, before: func(l *list, request, _ int) {
			if request == 2 {
				clear(l.subjects)
			}
		}},
		{name: "the end removed", limit: 10, subjects: 95, requests: 8, before: func(l *list, request, _ int) {
			for i := 3; request == 2 && i < 95; i++ {
				delete(l.subjects, name(i))
			}
		}},
		{name: "replaced by earlier ones", limit: 10, subjects: 95, requests: 20, before: func(l *list, request, _ int) {
			delete(l.subjects, name(3*request))
			l.subjects[fmt.Sprintf("a-%03d", request)] = true
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newList(test.limit, test.subjects)
			always := maps.Clone(l.subjects)
			l.before = func(request, offset int) {
				if test.before != nil {
					test.before(l, request, offset)
				}
				maps.DeleteFunc(always, func(subject string, _ bool) bool { return !l.subjects[subject] })
			}
			found, err := l.read()
			if err != nil {
				t.Error(err)
			}
			check(t, always, found)
			if l.requests > test.requests {
				t.Errorf("%d requests, want at most %d", l.requests, test.requests)
			}
		})
	}
}

func check(t *testing.T, always map[string]bool, found map[string]int) {
	t.Helper()
	for subject := range always {
		if found[subject] == 0 {
			t.Errorf("%q was in the list all the time and was not found", subject)
		}
	}
	for subject, times := range found {
		if times != 1 {
			t.Errorf("%q was found %d times", subject, times)
		}
	}
}

// TestReadRandom verifies that Read finds every subject that is in the list all the time, or returns
// an error, whatever changes.
func TestReadRandom(t *testing.T) {
	complete := 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		l := newList(2+random.IntN(20), random.IntN(200))
		always, ever := maps.Clone(l.subjects), maps.Clone(l.subjects)
		changes := random.IntN(l.limit) // between two pages
		l.before = func(int, int) {
			for range random.IntN(changes + 1) {
				subject := name(random.IntN(200))
				if l.subjects[subject] {
					delete(l.subjects, subject)
					delete(always, subject)
				} else {
					l.subjects[subject], ever[subject] = true, true
				}
			}
		}
		found, err := l.read()
		if l.requests > spareRequests+2*200 {
			t.Fatalf("seed %d: %d requests", seed, l.requests)
		}
		if err != nil {
			continue
		}
		complete++
		check(t, always, found)
		for subject := range found {
			if !ever[subject] {
				t.Errorf("seed %d: %q was never in the list", seed, subject)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if complete < 450 {
		t.Errorf("only %d lists are complete", complete)
	}
}

// TestReadInvalid verifies that subjects that JSON cannot hold neither hide other subjects nor keep
// Read from ending. They look the same, so a page seems to have fewer subjects than it has.
func TestReadInvalid(t *testing.T) {
	l := newList(10, 25)
	always := maps.Clone(l.subjects)
	for _, invalid := range []string{"\xf0", "\xf1", "s-000007\x80", "s-000007\x81", "s-000009\xff"} {
		l.subjects[invalid] = true
	}
	found, err := l.read()
	if err != nil {
		t.Error(err)
	}
	check(t, always, found)
	if len(found) != len(always) {
		t.Errorf("found %d subjects, want %d", len(found), len(always))
	}
}

func TestReadFails(t *testing.T) {
	t.Run("the request fails", func(t *testing.T) {
		want := errors.New("no response")
		err := Read(func(offset int) (Page, error) {
			if offset > 0 {
				return Page{}, want
			}
			return newList(10, 20).page(0)
		}, func(string) {})
		if !errors.Is(err, want) {
			t.Errorf("error is %v, want %v", err, want)
		}
	})
	t.Run("the list changes too fast", func(t *testing.T) {
		l := newList(10, 100)
		l.before = func(request, _ int) { // a page of earlier subjects before each page
			for i := range 10 {
				l.subjects[fmt.Sprintf("a-%03d-%d", request, i)] = true
			}
		}
		if found, err := l.read(); err == nil {
			t.Errorf("no error after %d requests that found %d subjects", l.requests, len(found))
		}
	})
	t.Run("the server reports no limit", func(t *testing.T) {
		l := newList(0, 100)
		if _, err := l.read(); err == nil || l.requests != 1 {
			t.Errorf("error is %v after %d requests", err, l.requests)
		}
	})
}
