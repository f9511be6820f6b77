package reader

import (
	"errors"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// TestLosses verifies that a partition counts as lost if records were removed at either end, or if
// the subscription was away for too long.
func TestLosses(t *testing.T) {
	log := publish.Log{Topic: "t", Partition: 2}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cursor := func(next int64) publish.Cursor {
		return publish.Cursor{Topics: map[string]string{"t": "id"}, Positions: map[publish.Log]uint64{log: publish.PositionOf(2, next-1)}}
	}
	for _, test := range []struct {
		name   string
		cursor publish.Cursor
		seen   []bounds
		want   bool
	}{
		{"grown", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"id", 0, 20, at}}, false},
		{"lost its end", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"id", 0, 9, at}}, true},
		{"lost its start", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"id", 5, 10, at}}, true},
		{"away", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"id", 0, 10, at.Add(publish.MaxAway + 1)}}, true},
		{"recreated", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"other", 0, 20, at}}, true},
		{"recreated after an answer without an ID", publish.Cursor{}, []bounds{{"id", 0, 10, at}, {"", 0, 10, at}, {"other", 0, 20, at}}, true},
		{"without IDs at first", publish.Cursor{}, []bounds{{"", 0, 10, at}, {"id", 0, 10, at}}, false},
		{"started late", publish.Cursor{}, []bounds{{"id", 5, 10, at}}, false},
		{"resumed", cursor(10), []bounds{{"id", 0, 10, at}, {"id", 0, 11, at}}, false},
		{"resumed in another topic", cursor(10), []bounds{{"other", 0, 10, at}}, true},
		{"resumed at the start", cursor(0), []bounds{{"id", 0, 10, at}}, false},
		{"resumed after the end", cursor(11), []bounds{{"id", 0, 10, at}}, true},
		{"resumed before the start", cursor(4), []bounds{{"id", 5, 10, at}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &subscription{target: target{opts: publish.SubscribeOptions{UntilLost: true, Cursor: test.cursor}}, seen: map[publish.Log]bounds{}}
			var err error
			for _, b := range test.seen {
				err = errors.Join(err, s.observe(log, b))
			}
			if got := errors.Is(err, publish.ErrLost); got != test.want {
				t.Errorf("got %v, want a loss: %t", err, test.want)
			}
		})
	}
}
