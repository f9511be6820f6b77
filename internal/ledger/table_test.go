package ledger

import (
	"maps"
	"math"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

const uid = "6f1e4c9a-1b7d-4e8f-9a3c-0123456789ab"

// TestTableIsExact verifies that the table returns every entry unchanged, for any UID and version
// that an API server may use.
func TestTableIsExact(t *testing.T) {
	key, other := event.Key{Resource: "pods", Name: "web"}, event.Key{Resource: "pods", Name: "other"}
	for name, c := range map[string]struct {
		acked  event.Acked
		packed bool
	}{
		"usual":                      {event.Acked{UID: uid, ResourceVersion: "12345", Position: 7}, true},
		"all fields":                 {event.Acked{UID: uid, ResourceVersion: "12345", Epoch: 3, Deleted: true, Deselected: true, Digest: event.Digest{1, 15: 2}, Time: 5, Position: 7}, true},
		"greatest":                   {event.Acked{UID: "ffffffff-ffff-ffff-ffff-ffffffffffff", ResourceVersion: "18446744073709551615", Epoch: math.MaxUint16, Time: 1<<46 - 1, Position: math.MaxUint64}, true},
		"version 0":                  {event.Acked{UID: uid, ResourceVersion: "0"}, true},
		"null UID":                   {event.Acked{UID: uuidForm, ResourceVersion: "0", Position: 1}, true},
		"null in all fields":         {event.Acked{UID: uuidForm, ResourceVersion: "0"}, false}, // the zero value, which means no event
		"upper case UID":             {event.Acked{UID: "6F1E4C9A-1B7D-4E8F-9A3C-0123456789AB", ResourceVersion: "1"}, false},
		"UID without hyphens":        {event.Acked{UID: "6f1e4c9a1b7d4e8f9a3c0123456789ab", ResourceVersion: "1"}, false},
		"hyphens elsewhere":          {event.Acked{UID: "6f1e4c9a1-b7d-4e8f-9a3c-0123456789ab", ResourceVersion: "1"}, false},
		"not hexadecimal":            {event.Acked{UID: "6f1e4c9a-1b7d-4e8f-9a3c-0123456789ag", ResourceVersion: "1"}, false},
		"another UID":                {event.Acked{UID: "A", ResourceVersion: "1"}, false},
		"leading zero":               {event.Acked{UID: uid, ResourceVersion: "01"}, false},
		"sign":                       {event.Acked{UID: uid, ResourceVersion: "+1"}, false},
		"negative":                   {event.Acked{UID: uid, ResourceVersion: "-1"}, false},
		"too great":                  {event.Acked{UID: uid, ResourceVersion: "18446744073709551616"}, false},
		"not a number":               {event.Acked{UID: uid, ResourceVersion: "x1"}, false},
		"no version":                 {event.Acked{UID: uid}, false},
		"unpacked, with a digest":    {event.Acked{UID: "A", ResourceVersion: "1", Digest: event.Digest{1, 15: 2}}, false},
		"a message that is no event": {event.Acked{Position: 7}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			term := l.NewTerm()
			term.Put(key, c.acked)
			if got := term.Get(key); got != c.acked {
				t.Errorf("got %+v, want %+v", got, c.acked)
			}
			if got := l.find(key).packed != (packed{}); got != c.packed || term.Len() != 1 {
				t.Errorf("packed %v, size %d; want %v, 1", got, term.Len(), c.packed)
			}
			if got := term.Epoch(); got != c.acked.Epoch {
				t.Errorf("epoch %d, want %d", got, c.acked.Epoch)
			}
			if got := term.Get(other); got != (event.Acked{}) {
				t.Errorf("another key: got %+v, want nothing", got)
			}
		})
	}
}

// TestTableHoldsAKeyOnce verifies that a key has one entry, with the event and form of the last Put.
func TestTableHoldsAKeyOnce(t *testing.T) {
	key := event.Key{Resource: "pods", Name: "web"}
	usual, odd := event.Acked{UID: uid, ResourceVersion: "1"}, event.Acked{UID: "A", ResourceVersion: "x"}
	l := New()
	term := l.NewTerm()
	for n, a := range []event.Acked{usual, odd, usual, {}, odd, {}, {}, usual} {
		term.Put(key, a)
		want := map[event.Key]event.Acked{}
		if a != (event.Acked{}) {
			want[key] = a
		}
		got, records := map[event.Key]event.Acked{}, 0
		for gr, of := range l.tables {
			records += len(of.records)
			for n, r := range of.records {
				got[n.key(gr)] = r.acked()
			}
		}
		if term.Get(key) != a || term.Len() != len(want) || records != len(want) || !maps.Equal(got, want) || len(l.tables) != len(want) {
			t.Errorf("step %d: got %+v, keys %v; want %+v", n, term.Get(key), got, a)
		}
	}
}
