package event

import (
	"testing"
	"time"
	"unsafe"
)

// TestStoredAt verifies the time of an entry. For an existing object, it is the time of the event.
// For a removal, it is the later of that time and the time at which the bus stored the event. A
// time in the future is ignored.
func TestStoredAt(t *testing.T) {
	const stored = 1_700_000_000_000
	hour := time.Hour.Milliseconds()
	for name, c := range map[string]struct {
		at      int64
		deleted bool
		want    int64
	}{
		"before":              {at: stored - 5, want: stored - 5},
		"after":               {at: stored + 5, want: stored + 5},
		"a removal before":    {at: stored - 5, deleted: true, want: stored},
		"a removal after":     {at: stored + 5, deleted: true, want: stored + 5},
		"unknown":             {want: stored},
		"before 1970":         {at: -5, want: stored},
		"an hour ahead":       {at: stored + hour, want: stored + hour},
		"further ahead":       {at: stored + hour + 1, want: stored},
		"a removal too ahead": {at: stored + hour + 1, deleted: true, want: stored},
	} {
		a := Acked{Deleted: c.deleted, Time: c.at}
		if a.StoredAt(time.UnixMilli(stored)); a.Time != c.want {
			t.Errorf("%s: got %d, want %d", name, a.Time, c.want)
		}
	}
}

// TestAckedTime verifies that an entry read from an event has the same time as the entry of the
// built event.
func TestAckedTime(t *testing.T) {
	for _, c := range changes {
		m, err := builder.Message(c.change)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := AckedFrom(m.Attribute); err != nil || got != m.Acked || got.Time == 0 || time.UnixMilli(got.Time).Before(c.change.Observed) {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, m.Acked)
		}
	}
}

// TestAckedSize limits the size of an entry, because the forwarder copies an entry for each key
// that it processes.
func TestAckedSize(t *testing.T) {
	if size := unsafe.Sizeof(Acked{}); size > 72 {
		t.Errorf("an entry has %d bytes", size)
	}
}
