package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/verify/normal"
)

// TestKafkaHistory verifies the rules for Kafka. Compaction can remove any event except the last of its
// object, unless the offsets prove that no event is missing. The writer forgets a delete after the
// retention, but the delete stays on the bus. Without an idempotent producer, an event can occur
// several times.
func TestKafkaHistory(t *testing.T) {
	kafka := func(h *history) { h.depth, h.forgets = afterCompaction, true }
	repeats := func(h *history) { kafka(h); h.repeats = true }
	early := func(h *history) {
		kafka(h)
		h.retention = newFollower(nil, place{}, normal.Form{}, afterCompaction, 24*time.Hour).history.retention
	}
	for _, tc := range []struct {
		name   string
		script []string
		change func(*history)
		want   string // "" for clean
	}{
		{name: "compacted", script: []string{"updated A 9 <7", "drop 1", "updated A 20 <15", "drop 2", "created B 30"}},
		{name: "compacted to a delete", script: []string{"deleted A 9 <7", "created B 30"}},
		{name: "purged", script: []string{"created A 5", "deleted A 6 <5", "wait 61", "tombstone", "created B 7"}},
		{name: "purged, and back", script: []string{"created A 5", "deleted A 6 <5", "wait 61", "tombstone", "created A 7"}},
		{name: "deleted, with its tombstone, and back", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "tombstone whole", "created A 7 <6 whole"}},
		{name: "a delete compacted before its tombstone", script: []string{"created A 5", "drop 1", "tombstone", "created A 7"}},
		{name: "a tombstone of what was compacted", script: []string{"tombstone", "created A 7"}},
		{name: "forgotten, and back", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "wait 61", "created A 7 whole"}},
		{name: "deselected, forgotten, and selected again", script: []string{"created A 5 whole", "deselected A 5 <5 whole", "wait 61", "created A 5 whole"}},
		{name: "deselected, purged early, and selected again", change: early, script: []string{"created A 5 whole", "deselected A 5 <5 whole", "wait 6", "created A 5 whole"}},
		{name: "repeated", change: repeats, script: []string{"created A 5", "created A 5", "updated A 6 <5", "updated A 6 <5", "updated A 6 <5", "deleted A 6 <6", "deleted A 6 <6", "created B 7"}},

		{name: "a repeated repair", change: repeats, script: []string{"created A 5", "foreign", "updated A 9 <5 repairs@2", "updated A 9 <5 repairs@2"}, want: "is not an event"},
		{name: "a repeated repair of what was compacted", change: repeats, script: []string{"created A 5", "wait 2", "updated A 9 <5 repairs@2", "updated A 9 <5 repairs@2"}},

		{name: "back too early", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "wait 50", "created A 7 whole"}, want: `previousversion is "", the event before has "6"`},
		{name: "deselected, and selected again too early", script: []string{"created A 5 whole", "deselected A 5 <5 whole", "wait 50", "created A 5 whole"}, want: "version 5 occurs twice"},
		{name: "deselected, and selected again too early for a purge", change: early, script: []string{"created A 5 whole", "deselected A 5 <5 whole", "wait 3", "created A 5 whole"}, want: "version 5 occurs twice"},
		{name: "the beginning is missing, and was there", script: []string{"updated A 9 <7 whole"}},
		{name: "the first is missing for certain", script: []string{"updated A 9 whole"}, want: "is of type updated"},
		{name: "a state is missing for certain", script: []string{"created A 5 whole", "updated A 9 <7 whole"}, want: `previousversion is "7", the event before has "5", after the event at 1`},
		{name: "a state is missing, and the one before is there", script: []string{"created A 5", "updated A 9 <7"}, want: `previousversion is "7"`},
		{name: "a tombstone of what exists", script: []string{"created A 5", "tombstone", "created A 7"}, want: "a tombstone follows an event that shows the object as existing"},
		{name: "a tombstone of what exists for certain", script: []string{"created A 5 whole", "drop 1", "tombstone whole", "created A 7"}, want: "a tombstone follows an event that shows the object as existing"},
		{name: "an update after a purge", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "wait 61", "tombstone", "updated A 7 <6 whole"}, want: "is of type updated"},
		{name: "an update after a delete", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "tombstone", "updated A 7 <6 whole"}, want: "type updated follows the delete of the same uid"},
		{name: "back too early after a tombstone", script: []string{"created A 5 whole", "deleted A 6 <5 whole", "tombstone", "created A 7 whole"}, want: `previousversion is "", the event before has "6"`},
		{name: "two partitions", script: []string{"created A 5 p1", "updated A 7 <5 p2", "updated A 9 <7 p1"}, want: "its events are in the partitions 1 and 2"},
		{name: "repeated although idempotent", script: []string{"created A 5", "created A 5"}, want: `id "A.5" occurs twice`},
		{name: "an old one repeated", change: repeats, script: []string{"created A 5", "updated A 6 <5", "created A 5"}, want: "the version falls from 6 to 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			change := kafka
			if tc.change != nil {
				change = tc.change
			}
			got := fold(t, tc.script, change).problems
			switch {
			case tc.want == "" && len(got) > 0:
				t.Errorf("got %+v", got)
			case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0].Detail, tc.want)):
				t.Errorf("got %+v, want one with %q", got, tc.want)
			}
		})
	}
}
