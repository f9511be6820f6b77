package takeover

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// TestErased verifies that a takeover looks up an erased state only if no later event follows it. So
// the removals that a forwarder records, and their purges, cost no lookup.
func TestErased(t *testing.T) {
	state := func(offset int64) record.Entry { return record.Entry{UID: "u", Topic: "t", Offset: offset} }
	removal := func(offset int64) record.Entry {
		return record.Entry{UID: "u", Deleted: true, Topic: "t", Offset: offset}
	}
	marker := record.Entry{Type: event.SnapshotStarted, Topic: "t", Offset: 1}
	tombstone := none
	const nowhere = -1
	for name, c := range map[string]struct {
		records []record.Entry
		want    int64 // the offset of the erased state
	}{
		"a state":                            {[]record.Entry{state(1), state(2)}, nowhere},
		"a removal":                          {[]record.Entry{state(1), removal(2)}, nowhere},
		"a purge":                            {[]record.Entry{state(1), removal(2), tombstone}, nowhere},
		"a purge, repeated":                  {[]record.Entry{state(1), removal(2), tombstone, tombstone}, nowhere},
		"another life":                       {[]record.Entry{state(1), removal(2), tombstone, state(3)}, nowhere},
		"a tombstone":                        {[]record.Entry{state(1), state(2), tombstone}, 2},
		"two tombstones":                     {[]record.Entry{state(2), tombstone, tombstone}, 2},
		"a removal before the state":         {[]record.Entry{state(2), removal(1)}, 2},
		"a removal in its place":             {[]record.Entry{state(2), removal(2), removal(2)}, 2},
		"a removal in its place, and later":  {[]record.Entry{state(2), removal(2), removal(3)}, nowhere},
		"a removal after a tombstone":        {[]record.Entry{state(2), tombstone, removal(3)}, nowhere},
		"a removal of another partition":     {[]record.Entry{state(2), {UID: "u", Deleted: true, Topic: "t", Partition: 1}}, nowhere},
		"a removal of another topic":         {[]record.Entry{state(2), {UID: "u", Deleted: true, Topic: "another"}}, nowhere},
		"a state before it":                  {[]record.Entry{state(2), state(1)}, 2},
		"another state in its place":         {[]record.Entry{state(2), {UID: "v", Topic: "t", Offset: 2}}, 2},
		"the same state":                     {[]record.Entry{state(2), {UID: "u", Topic: "t", Offset: 2, At: 1}}, nowhere},
		"recorded again":                     {[]record.Entry{state(2), tombstone, state(2)}, nowhere},
		"a marker":                           {[]record.Entry{marker, tombstone}, nowhere},
		"of nothing":                         {[]record.Entry{tombstone}, nowhere},
		"erased again, the later one counts": {[]record.Entry{state(2), tombstone, state(4), tombstone}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := &part{map[string]record.Entry{}, map[string]erasedEntry{}}
			for offset, e := range c.records {
				p.read(int64(offset), "k", e)
			}
			got := int64(nowhere)
			if e, ok := p.erased["k"]; ok {
				got = e.Offset
			}
			if got != c.want {
				t.Errorf("the erased state is at %d, want %d", got, c.want)
			}
			if last := c.records[len(c.records)-1]; p.entries["k"] != last {
				t.Errorf("the entry is %+v, want %+v", p.entries["k"], last)
			}
		})
	}
}

// TestSpreadOf verifies that the recorded number of partitions counts, unless another number fits
// more of the records.
func TestSpreadOf(t *testing.T) {
	over := func(n int, numbers ...int) (all []placement) {
		for _, number := range numbers {
			all = append(all, placement{number, number % n})
		}
		return all
	}
	for name, c := range map[string]struct {
		recorded, partitions int
		all                  []placement
		want                 int
	}{
		"nothing is there":                      {3, 5, nil, 3},
		"nothing is there, or recorded":         {0, 5, nil, 5},
		"there are fewer partitions":            {7, 5, nil, 5},
		"several numbers fit":                   {3, 5, over(3, 0, 1, 2), 3},
		"several numbers fit, none is recorded": {0, 5, over(3, 0, 1, 2), 5},
		"one fits, none is recorded":            {0, 5, over(3, 7, 8, 10, 22, 23, 25, 37, 38, 40, 52, 53, 55), 3},
		"few are elsewhere, none is recorded":   {0, 3, over(2, 7, 9, 11), 3},
		"the recorded one is too low":           {1, 5, over(3, 7, 8, 10), 3},
		"the recorded one is too high":          {5, 5, over(3, 7, 8, 10), 3},
		"one thing is elsewhere":                {3, 5, append(over(3, 7, 8, 10), placement{7, 2}), 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spreadOf(c.recorded, c.partitions, c.all); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
