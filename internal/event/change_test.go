package event

import (
	"testing"
	"time"
	"unsafe"
)

// TestStoredAt: the time of an existing object's entry is that of its event, and that of a
// removal's entry the later of it and the time at which the bus stored it. A time in the
// future is not believed.
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

// TestAckedTime: an entry that is read from an event has the time of the one that was built.
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

// TestAckedSize: one is copied for each key that is taken.
func TestAckedSize(t *testing.T) {
	if size := unsafe.Sizeof(Acked{}); size > 72 {
		t.Errorf("an entry has %d bytes", size)
	}
}
