package index

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// TestUnansweredForeignRecords verifies that a foreign record counts while it is the last record of
// its key.
func TestUnansweredForeignRecords(t *testing.T) {
	at := func(offset int64) record.Entry { return record.Entry{UID: "A", Topic: "t", Offset: offset} }
	const key = "c/core/pods/default/web"
	id := Of([]byte(key))
	for name, c := range map[string]struct {
		last      uint64
		busy      bool
		tombstone bool
		want      bool
		keeps     bool
	}{
		"the last":                 {last: 5, want: true, keeps: true},
		"of an unknown object":     {want: true, keeps: true},
		"followed by ours":         {last: 12},
		"ours, acknowledged since": {last: publish.PositionOf(0, 9)},
		"one in another partition": {last: publish.PositionOf(2, 0), want: true, keeps: true},
		"with an event in flight":  {last: 5, busy: true, keeps: true},
		"a tombstone":              {last: 5, tombstone: true, want: true, keeps: true},
		"a tombstone upon nothing": {tombstone: true},
	} {
		t.Run(name, func(t *testing.T) {
			x, f := New(), Foreign{}
			x.Found(id, c.last)
			if c.busy {
				x.Begin(id, c.last)
			}
			f.Add(map[string]ForeignRecord{key: {Entry: at(9), Tombstone: c.tombstone}})
			for range 2 {
				_, got := f.Unanswered(x)[key]
				if _, kept := f.last[key]; got != c.want || kept != c.keeps {
					t.Errorf("got %v, kept %v; want %v, %v", got, kept, c.want, c.keeps)
				}
			}
			if want := at(9).Position(); c.want && x.Position(id) != want {
				t.Errorf("the next event expects %d, want %d", x.Position(id), want)
			}
		})
	}
}
