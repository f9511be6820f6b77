package publish

import (
	"testing"
	"time"
)

// TestSkips verifies that an event from before the start of a consumer counts as skipped, although
// the consumer's acknowledged position covers that event.
func TestSkips(t *testing.T) {
	stored := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	d := Delivery{Position: 42, Stored: stored}
	later, earlier := stored.Add(time.Second), stored.Add(-time.Second)
	for _, c := range []struct {
		name  string
		start Start
		want  string
		sure  bool
	}{
		{"all", Start{}, "", true},
		{"created later", Start{Time: later, Why: "its deliver policy is new"}, "it began after this event: its deliver policy is new, since 2026-03-04T05:06:08Z", true},
		{"created earlier", Start{Time: earlier}, "", true},
		{"begins at it", Start{Time: stored}, "", true},
		{"later sequence", Start{Position: 43, Why: "its deliver policy is by_start_sequence"}, "it began after this event: its deliver policy is by_start_sequence, 43", true},
		{"its sequence", Start{Position: 42}, "", true},
		{"last", Start{Time: later, Last: true, Why: "its deliver policy is last"},
			"it was created after this event, at 2026-03-04T05:06:08Z, and its deliver policy is last: it received the event only if the event was the last message", false},
		{"last, created earlier", Start{Time: earlier, Last: true}, "", true},
	} {
		if got, sure := c.start.Skips(d); got != c.want || sure != c.sure {
			t.Errorf("%s: got %q, %t, want %q, %t", c.name, got, sure, c.want, c.sure)
		}
	}
}
