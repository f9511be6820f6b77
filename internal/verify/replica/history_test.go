package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

var (
	someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web      = event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"}
)

const testDepth = 4

// fold applies a script to a history. Each line is one event of the object web at the next position,
//
//	created A 5           type, uid, version
//	updated A 7 <5        with previousversion
//	updated A 3 <7 e1     in epoch 1
//
// or a change of the bus while nobody read it:
//
//	drop 3                the bus has dropped messages 1 to 3
//	foreign               a message that isn't an event
//	updated A 5 <5 repairs  a repair of the foreign event at the position before
//	updated A 5 <5 repairs@2  a repair of the foreign event at position 2
//
// These lines are only for Kafka:
//
//	updated A 7 <5 p2     in partition 2
//	updated A 7 <5 whole  with nothing missing before it
//	tombstone
//	tombstone whole
func fold(t *testing.T, script []string, change ...func(*history)) *history {
	t.Helper()
	first := uint64(1) // the oldest message on the bus
	h := &history{
		points: newPoints(),
		depth:  testDepth, retention: time.Hour, show: decimal,
		objects: map[event.Key]*object{}, markers: map[markerLog]string{}, doubts: map[event.Key][]doubt{}, open: map[event.Key][]int{},
	}
	for _, f := range change {
		f(h)
	}
	var position uint64
	h.now = func() time.Time { return someTime.Add(time.Duration(position) * time.Minute) }
	h.kept = func(_ event.Key, position uint64) (bool, error) { return position >= first, nil }
	for _, line := range script {
		words := strings.Fields(line)
		position++
		switch words[0] {
		case "drop":
			position--
			if _, err := fmt.Sscan(words[1], &first); err != nil {
				t.Fatal(err)
			}
			first++
			continue
		case "wait": // minutes
			n := uint64(0)
			if _, err := fmt.Sscan(words[1], &n); err != nil {
				t.Fatal(err)
			}
			position += n - 1
			continue
		case "foreign":
			h.addForeign(web, "s", position, errors.New("nonsense"))
			continue
		case "tombstone":
			if err := h.addTombstone(web, position, len(words) > 1); err != nil {
				t.Fatal(err)
			}
			continue
		}
		e := Event{
			Key: web, Position: position, Stored: h.now(), Type: wire.Type("io.kuberelay.object." + words[0]), UID: words[1], Version: words[2],
		}
		e.ID = e.UID + "." + e.Version
		if e.Type == wire.Deleted {
			e.ID = e.UID + ".deleted"
		}
		if e.Type == wire.Deselected {
			e.ID = fmt.Sprintf("%s.deselected.%d", e.UID, position-1)
		}
		for _, w := range words[3:] {
			partition := 0
			if previous, ok := strings.CutPrefix(w, "<"); ok {
				e.Previous = previous
			} else if w == "again" {
				e.Again, e.ID = true, fmt.Sprintf("%s.selected.%d", e.ID, position-1)
			} else if after, ok := strings.CutPrefix(w, "repairs"); ok {
				e.Again, e.Repairs = true, position-1
				if at, ok := strings.CutPrefix(after, "@"); ok {
					if _, err := fmt.Sscan(at, &e.Repairs); err != nil {
						t.Fatal(err)
					}
				}
				e.ID = fmt.Sprintf("%s.repaired.%d", e.ID, e.Repairs)
			} else if w == "whole" {
				e.Whole = true
			} else if _, err := fmt.Sscanf(w, "p%d", &partition); err == nil {
				e.Position = publish.PositionOf(partition, int64(position))
			} else if _, err := fmt.Sscanf(w, "e%d", &e.Epoch); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.add(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	h.settleDoubts(position)
	return h
}

func TestHistory(t *testing.T) {
	const broken = "!" // the line that breaks a rule begins with it
	for _, tc := range []struct {
		name   string
		script []string
		want   []string // in the details of the problems
	}{
		// Clean.
		{name: "life of an object", script: []string{"created A 5", "updated A 7 <5", "updated A 9 <7", "deleted A 11 <9"}},
		{name: "snapshot", script: []string{"snapshot A 5", "updated A 7 <5"}},
		{name: "a delete of which no more is known", script: []string{"created A 5", "deleted A 5 <5"}},
		{name: "recreated", script: []string{"created A 5", "deleted A 6 <5", "created B 7", "updated B 8 <7"}},
		{name: "recreated after a delete of which no more is known", script: []string{"created A 5", "deleted A 5 <5", "created B 7"}},
		{name: "left a selector and came back", script: []string{"created A 5", "deleted A 6 <5", "created A 7 <6", "deleted A 8 <7", "created A 9 <8"}},
		{name: "deselected, and selected again without a change, twice", script: []string{
			"created A 5", "deselected A 5 <5", "created A 5 <5 again", "deselected A 5 <5", "created A 5 <5 again", "updated A 6 <5"}},
		{name: "deselected, and selected again after a change", script: []string{"created A 5", "deselected A 5 <5", "created A 8 <5"}},
		{name: "a later epoch has lower versions", script: []string{"created A 100", "updated A 50 <100 e1", "updated A 51 <50 e1"}},
		{name: "deleted in a later epoch", script: []string{"created A 100", "deleted A 100 <100 e1", "created B 51 e1"}},
		{name: "deleted in a later epoch, the beginning dropped", script: []string{"deleted A 100 <100 e1", "created B 51 e1", "updated B 52 <51 e1", "updated B 53 <52 e1"}},
		{name: "came back in a later epoch", script: []string{"created A 100", "deleted A 101 <100", "created A 50 <101 e1"}},
		{name: "versions that are no numbers", script: []string{"created A x", "updated A b <x", "updated A a <b"}},
		{name: "versions of different lengths", script: []string{"created A 9", "updated A 10 <9", "updated A 100 <10"}},
		{name: "a history that is full begins anywhere", script: []string{"updated A 7 <5", "updated A 9 <7", "updated A 11 <9", "deleted A 12 <11"}},
		{name: "a history that is full begins with a delete", script: []string{"deleted A 7 <5", "created B 9", "deleted B 11 <9", "created C 12"}},
		// KUBERELAY_NATS_HISTORY was raised from 2 to 4. An earlier version of verify reported this
		// as a violation.
		{name: "the history was shorter once", script: []string{"updated A 7 <5", "updated A 9 <7"}},
		{name: "the history was shorter once, and begins with a delete", script: []string{"deleted A 7 <5", "created B 9"}},
		{name: "purged, and back", script: []string{"created A 9 <7"}},
		{name: "dropped while it was read", script: []string{
			"created A 1", "drop 1", "updated A 7 <6", "updated A 8 <7", "updated A 9 <8", "updated A 10 <9"}},
		{name: "delete dropped while it was read", script: []string{
			"created A 1", "drop 1", "created B 7", "updated B 8 <7", "updated B 9 <8", "updated B 10 <9"}},
		{name: "dropped twice while it was read", script: []string{
			"created A 1", "drop 1", "updated A 7 <6", "drop 2", "updated A 17 <16", "updated A 18 <17", "updated A 19 <18", "updated A 20 <19"}},
		{name: "between two deletes of one uid, dropped while it was read", script: []string{
			"created A 1", "deleted A 2 <1", "drop 2", "deleted A 4 <3", "created A 5 <4", "deleted A 6 <5", "created A 7 <6"}},
		{name: "purged while it was read, then recreated", script: []string{"created A 1", "wait 100", "drop 1", "created B 7"}},
		{name: "purged while it was read, then back", script: []string{"created A 1", "wait 100", "drop 1", "created A 7 <6"}},
		{name: "delete read and then purged, then back", script: []string{"created A 1", "deleted A 2 <1", "drop 2", "created A 7"}},
		{name: "started anew after a message of someone else", script: []string{"created A 1", "foreign", "created A 1"}, want: []string{"not an event of Kuberelay: nonsense"}},

		// Certain, whatever other messages are between two messages.
		{name: "one id twice", script: []string{"created A 5", "updated A 7 <5", "!updated A 7 <5"}, want: []string{`id "A.7" occurs twice`}},
		{name: "one id twice after a drop", script: []string{
			"created A 5", "drop 1", "!updated A 5 <4", "updated A 6 <5", "updated A 7 <6", "updated A 8 <7"}, want: []string{`id "A.5" occurs twice`}},
		{name: "one id twice in two epochs", script: []string{"created A 5", "!updated A 5 <5 e1"}, want: []string{`id "A.5" occurs twice`}},
		{name: "the version falls", script: []string{"created A 7", "!updated A 5 <7"}, want: []string{"the version falls from 7 to 5"}},
		{name: "the version falls by its length", script: []string{"created A 10", "!updated A 9 <10"}, want: []string{"the version falls from 10 to 9"}},
		{name: "the version falls in a delete", script: []string{"created A 7", "!deleted A 5 <7"}, want: []string{"the version falls from 7 to 5"}},
		{name: "the version falls after a delete", script: []string{"created A 7", "deleted A 9 <7", "!created A 8 <9"}, want: []string{"the version falls from 9 to 8"}},
		{name: "back in the version of the delete", script: []string{"created A 7", "deleted A 9 <7", "!created A 9 <9"}, want: []string{"version 9 occurs twice"}},
		{name: "an older uid overwrites", script: []string{"created A 5", "deleted A 6 <5", "created B 7", "deleted B 8 <7", "!created A 6"},
			want: []string{`the version falls from 8 of uid "B" to 6 of uid "A"`}},
		{name: "the version falls after a delete in a later epoch", script: []string{"created A 100", "deleted A 90 <100 e1", "!created B 51 e1"},
			want: []string{`the version falls from 90 of uid "A" to 51 of uid "B"`}},
		{name: "the epoch falls", script: []string{"created A 5 e2", "!updated A 7 <5 e1"}, want: []string{"the epoch falls from 2 to 1"}},

		// Certain because the first of two neighbors still exists.
		{name: "one delete twice", script: []string{"created A 5", "deleted A 6 <5", "!deleted A 6 <6"}, want: []string{`id "A.deleted" occurs twice, after the event at 2`}},
		{name: "deselected, and there again with the id that it had", script: []string{"created A 5", "deselected A 5 <5", "!created A 5 <5"}, want: []string{"version 5 occurs twice"}},
		{name: "update after deselected", script: []string{"created A 5", "deselected A 6 <5", "!updated A 7 <6"}, want: []string{"type updated follows the delete of the same uid"}},
		{name: "update after delete", script: []string{"created A 5", "deleted A 6 <5", "!updated A 7 <6"}, want: []string{"type updated follows the delete of the same uid"}},
		{name: "recreated without a delete", script: []string{"created A 5", "!created B 7"}, want: []string{`uid "B" follows uid "A" without a delete in between`}},
		{name: "deleted instead of another", script: []string{"created A 5", "!deleted B 7"}, want: []string{`uid "B" follows uid "A" without a delete in between`}},
		{name: "created twice", script: []string{"created A 5", "!created A 7 <5"}, want: []string{"type created of a uid that already exists"}},
		{name: "snapshot of what exists", script: []string{"created A 5", "!snapshot A 7 <5"}, want: []string{"type snapshot of a uid that already exists"}},
		{name: "a state is missing", script: []string{"created A 5", "!updated A 9 <7"}, want: []string{`previousversion is "7", the event before has "5"`}},
		{name: "no previousversion", script: []string{"created A 5", "!updated A 9"}, want: []string{`previousversion is "", the event before has "5"`}},
		{name: "back without previousversion", script: []string{"created A 5", "deleted A 6 <5", "!created A 9"}, want: []string{`previousversion is "", the event before has "6"`}},
		{name: "first event is an update", script: []string{"created A 5", "deleted A 6 <5", "!updated B 9"}, want: []string{`the first event of uid "B" is of type updated`}},
		{name: "first event has a previousversion", script: []string{"created A 5", "deleted A 6 <5", "!created B 9 <6"}, want: []string{`the first event of uid "B" has previousversion "6"`}},
		{name: "much later is no excuse", script: []string{"created A 1", "wait 100", "!created B 7", "updated B 8 <7", "updated B 9 <8", "updated B 10 <9"},
			want: []string{"without a delete in between"}},

		// Certain because not enough messages were dropped.
		{name: "the beginning is missing", script: []string{"!updated A 7", "updated A 9 <7", "updated A 11 <9"}, want: []string{`the first event of uid "A" is of type updated`}},
		{name: "only a delete", script: []string{"!deleted A 7"}, want: []string{`the first event of uid "A" is of type deleted`}},
		{name: "someone else first, and not followed", script: []string{"foreign", "!updated A 7 <5"}, want: []string{"not an event of Kuberelay", `the first event of uid "A" is of type updated`}},
		{name: "someone else in between, and not followed", script: []string{"created A 5", "foreign", "!updated A 7 <5"}, want: []string{"not an event of Kuberelay", `the first event of uid "A" is of type updated`}},
		{name: "a drop of too few", script: []string{"created A 1", "drop 1", "!updated A 7 <6", "updated A 8 <7", "updated A 9 <8"}, want: []string{`previousversion is "6"`}},
		{name: "a purge does not make an update", script: []string{"created A 1", "wait 100", "drop 1", "!updated A 7 <6"}, want: []string{`previousversion is "6"`}},
		{name: "too soon for a purge", script: []string{"created A 1", "wait 50", "drop 1", "!created B 7"}, want: []string{"without a delete in between"}},
		{name: "the second drop of too few", script: []string{
			"created A 1", "drop 1", "updated A 7 <6", "updated A 8 <7", "updated A 9 <8", "updated A 10 <9", "drop 5", "!updated A 15 <14"},
			want: []string{`previousversion is "14"`}},

		{name: "several", script: []string{"created A 5", "!updated A 9 <7", "!updated A 8 <9", "!created B 10"},
			want: []string{`previousversion is "7"`, "the version falls from 9 to 8", "without a delete in between"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var at []uint64
			script := slices.Clone(tc.script)
			position := uint64(0)
			for i, line := range script {
				n := uint64(1)
				if strings.HasPrefix(line, "drop") {
					n = 0
				} else if _, err := fmt.Sscanf(line, "wait %d", &n); err != nil {
					n = 1
				}
				position += n
				if rest, ok := strings.CutPrefix(line, broken); ok {
					script[i] = rest
					at = append(at, position)
				} else if line == "foreign" {
					at = append(at, position)
				}
			}
			h := fold(t, script)
			slices.SortFunc(h.problems, func(a, b report.Problem) int { return int(a.Position) - int(b.Position) })
			if len(h.problems) != len(tc.want) {
				t.Fatalf("got %d problems, want %d: %+v", len(h.problems), len(tc.want), h.problems)
			}
			for i, p := range h.problems {
				if !strings.Contains(p.Detail, tc.want[i]) {
					t.Errorf("got %q, want %q in it", p.Detail, tc.want[i])
				}
				if p.Position != at[i] {
					t.Errorf("%q is at %d, want %d", p.Detail, p.Position, at[i])
				}
				if p.Resource != "deployments.apps" || p.Namespace != "default" || p.Name != "web" {
					t.Errorf("%q is of %s %s/%s", p.Detail, p.Resource, p.Namespace, p.Name)
				}
			}
		})
	}
}

// TestHistoryOfRepairs verifies that a repair turns the earlier problems of its object, and of no
// other, into foreign events. The events after the repair must be in order.
func TestHistoryOfRepairs(t *testing.T) {
	for name, tc := range map[string]struct {
		script []string
		want   string // kinds and positions
	}{
		"forged delete":                      {[]string{"created A 5", "deleted A 5 <5", "created A 5 <5 repairs", "updated A 6 <5"}, "foreign 2"},
		"forged version":                     {[]string{"created A 5", "updated A 99 <7", "updated A 5 <5 repairs", "updated A 6 <5"}, "foreign 2"},
		"forged epoch":                       {[]string{"created A 5", "updated A 6 <5 e7", "updated A 5 <5 repairs", "deleted A 6 <5"}, "foreign 2"},
		"several":                            {[]string{"created A 5", "updated A 99 <7", "foreign", "created A 5 <5 repairs"}, "foreign 2, foreign 3"},
		"not an event":                       {[]string{"created A 5", "foreign", "updated A 5 <5 repairs"}, "foreign 2"},
		"gone":                               {[]string{"created A 5", "deleted A 6 <5", "created B 99", "deleted B 6 repairs", "created C 7"}, "foreign 3"},
		"after it":                           {[]string{"created A 5", "deleted A 5 <5", "created A 5 <5 repairs", "updated A 4 <5"}, "foreign 2, misordered 4"},
		"no repair":                          {[]string{"created A 5", "updated A 99 <7"}, "misordered 2"},
		"the forged was dropped":             {[]string{"created A 5", "wait 3", "updated A 5 <5 repairs"}, ""},
		"a state before the forged was lost": {[]string{"created A 5", "wait 3", "updated A 9 <7 repairs"}, "misordered 5"},
		"a state before the last was lost":   {[]string{"created A 5", "updated A 9 <7", "wait 3", "updated A 9 <9 repairs"}, "misordered 2"},
		"the forged delete was dropped":      {[]string{"created A 5", "wait 3", "created A 5 repairs"}, ""},
		"one of two was dropped":             {[]string{"created A 5", "foreign", "wait 2", "updated A 5 <5 repairs"}, "malformed 2"},
		"the forged object was dropped":      {[]string{"created A 5", "wait 3", "deleted A 5 repairs"}, ""},
		"the forged uid was dropped":         {[]string{"created A 5", "wait 3", "created B 9 repairs"}, ""},
		"both were dropped":                  {[]string{"created A 5", "drop 1", "wait 3", "updated A 9 <7 repairs", "updated A 10 <9", "updated A 11 <10", "updated A 12 <11"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.script, tc.want)
		})
	}
}

// TestFloodOfForeignMessages verifies that the time for many foreign messages and repairs of a few
// objects is in proportion to their number: 8 times as many messages take about 8 times as long. With a
// scan of the earlier messages of the object, they take about 64 times as long.
func TestFloodOfForeignMessages(t *testing.T) {
	const few, factor = 5_000, 8
	short, long := flood(t, few), flood(t, factor*few)
	if ratio := float64(long) / float64(short); ratio > 4*factor {
		t.Errorf("%d times as many messages took %.0f times as long (%s and %s)", factor, ratio, short, long)
	}
}

// flood adds foreign messages and repairs of four objects. It returns the CPU time that they took.
func flood(t *testing.T, messages uint64) time.Duration {
	t.Helper()
	h := fold(t, nil)
	began := processorTime(t)
	for n := uint64(1); n <= messages; n++ {
		k := web
		k.Name = fmt.Sprint(n / 2 % 4)
		if n%2 == 0 {
			h.addForeign(k, "s", n, errors.New("nonsense"))
			continue
		}
		e := Event{Key: k, Position: n, Type: wire.Updated, UID: "A", ID: fmt.Sprint("A.5.repaired.", n-1), Version: "5", Previous: "5", Again: true, Repairs: n - 1}
		if err := h.add(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	spent := processorTime(t) - began
	if n := uint64(len(h.problems)); n != messages/2 {
		t.Errorf("got %d problems, want %d", n, messages/2)
	}
	return spent
}

// processorTime returns the CPU time of this process, not the elapsed time, so other processes don't matter.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestLongDetailsAreCut verifies that the text of another writer's message can't fill the memory.
func TestLongDetailsAreCut(t *testing.T) {
	h := &history{objects: map[event.Key]*object{}}
	h.addForeign(event.Key{}, "a message", 1, errors.New(strings.Repeat("é", 1<<20)))
	if got := h.problems[0].Detail; len(got) > 2*maxDetail || !strings.HasPrefix(got, "a message is not an event of Kuberelay: éé") || !utf8.ValidString(got) {
		t.Errorf("the detail has %d bytes", len(got))
	}
}
