package informers

import (
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestDeselectedWhileListing verifies that a deselection from before an informer started is not published
// while the informer lists. The object may have returned to the selection, for example on a standby whose
// namespace lost its label and got it back. An earlier version deselected every object of that namespace
// if the standby took over at that moment.
func TestDeselectedWhileListing(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	for uid, deselected := range map[string]bool{"A": true, "Z": false} {
		b.ledger.AddTombstone(testKey, event.Tombstone{UID: uid, Deselected: deselected, Cause: event.CauseWatch})
	}
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z"}) {
		t.Errorf("gone while the informer lists: %v, want [Z]", got)
	}
	b.sync()
	if got := uids(b.Lookup(testKey).Tombstones); len(got) != 2 {
		t.Errorf("gone after the list: %v, want [A Z]", got)
	}
}
