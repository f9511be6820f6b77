package record

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// TestEntry verifies that decoding returns the encoded entry, including entries of earlier and later
// releases.
func TestEntry(t *testing.T) {
	want := event.Acked{
		UID: "u-1", ResourceVersion: "7", Epoch: 2, Deleted: true, Deselected: true,
		Time: 5000, Position: publish.PositionOf(3, 9),
	}
	const old = `{"uid":"u-1","resourceVersion":"7","epoch":2,"deleted":true,"deselected":true,"time":5,"topic":"t","partition":3,"offset":9}`
	e := EntryOf(want, "t", 3, 9)
	if e.Time, e.At = 5, 0; string(Marshal(e)) != old {
		t.Errorf("without a digest and a time of the event:\n got %s\nwant %s", Marshal(e), old)
	}
	wantEntry(t, old, want)

	want.Digest, want.Time = event.Digest{0xab, 15: 0x01}, 5678
	e = EntryOf(want, "t", 3, 9)
	e.Time = 5
	wantEntry(t, string(Marshal(e)), want)
	e.Deleted, e.Deselected, e.Time = false, false, 1_700_000_000 // the time of the next event becomes that of the previous one
	want.Deleted, want.Deselected = false, false
	wantEntry(t, string(Marshal(e)), want)
}

func wantEntry(t *testing.T, value string, want event.Acked) {
	t.Helper()
	c, err := parser.Checkpoint(broker.Record{Key: []byte(objectKey), Value: []byte(value)}, 0)
	if err != nil || c.Kind != OfEvent || c.Entry.Acked() != want {
		t.Errorf("%s is read as %+v, %v, want %+v", value, c.Entry.Acked(), err, want)
	}
}
