package kafka

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestEntry: what is recorded is read as it was, also by an earlier or a later release.
func TestEntry(t *testing.T) {
	want := event.Acked{
		UID: "u-1", ResourceVersion: "7", Epoch: 2, Deleted: true, Deselected: true,
		Stored: 5, Position: publish.PositionOf(3, 9),
	}
	const old = `{"uid":"u-1","resourceVersion":"7","epoch":2,"deleted":true,"deselected":true,"time":5,"topic":"t","partition":3,"offset":9}`
	if got := string(marshal(entryOf(want, "t", 3, 9))); got != old {
		t.Errorf("without a digest:\n got %s\nwant %s", got, old)
	}
	wantEntry(t, old, want)

	want.Digest = event.Digest{0xab, 15: 0x01}
	wantEntry(t, string(marshal(entryOf(want, "t", 3, 9))), want)
}

func wantEntry(t *testing.T, record string, want event.Acked) {
	t.Helper()
	var e entry
	if !parse([]byte(record), &e) || e.acked() != want {
		t.Errorf("%s is read as %+v, want %+v", record, e.acked(), want)
	}
}
