package checkpoint

import (
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestForgedEpoch verifies that the first load and a refresh refuse an epoch that no restore
// explains. An earlier version adopted an epoch of 9999 forever, and an epoch of 65535 overflowed.
func TestForgedEpoch(t *testing.T) {
	const jump = event.MaxEpochJump
	for _, c := range []struct {
		name   string
		known  uint16   // epoch of an earlier checkpoint; 0 if none exists
		epochs []uint16 // of the events
		want   uint16   // highest
		refuse int
	}{
		{"none", 0, nil, 0, 0},
		{"no restore", 0, []uint16{0, 0, 0}, 0, 0},
		{"a few restores", 0, []uint16{0, 3, 7}, 7, 0},
		{"as many as the bound", 0, []uint16{0, jump}, jump, 0},
		{"one forged event", 0, []uint16{0, 0, event.LastEpoch}, 0, 1},
		{"one forged event among two", 0, []uint16{0, event.LastEpoch}, 0, 1},
		{"several forged events", 0, []uint16{0, 0, 1, jump + 2, event.LastEpoch, event.LastEpoch}, 1, 3},
		{"known before", 500, []uint16{0, 0, 0, 500 + jump}, 500 + jump, 0},
		{"forged after what is known", 500, []uint16{0, 0, 0, 500, 501 + jump}, 500, 1},
		{"an API that lost its storage 500 times", 0, []uint16{500, 500, 500}, 500, 0},
		{"likewise, and a forged event of the first epoch", 0, []uint16{0, 500, 500, 500, event.LastEpoch}, 500, 1},
		{"likewise, and one that kept an object", 0, []uint16{450, 500, 500}, 500, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cp := newBench()
			refused := map[event.Key]event.Acked{}
			cp.Refused = func(k event.Key, a event.Acked, err error) {
				if refused[k] = a; event.ReasonOf(err) != event.InvalidEpoch {
					t.Errorf("%s: %v", k, err)
				}
			}
			if c.known > 0 {
				cp.Put(key("known"), event.Acked{UID: uid, ResourceVersion: "1", Epoch: c.known})
			}
			entries := map[event.Key]event.Acked{}
			for n, epoch := range c.epochs {
				entries[key(fmt.Sprint(n))] = event.Acked{
					UID: uid, ResourceVersion: "9", Epoch: epoch, Deleted: n%2 == 1, Digest: event.Digest{1}, Position: uint64(n + 1), Time: 7,
				}
			}
			for n := range 10 { // messages that are not events
				entries[key(fmt.Sprint("invalid-", n))] = event.Acked{Position: uint64(100 + n)}
			}
			if _, err := cp.Load(t.Context(), holds(entries)); err != nil {
				t.Fatal(err)
			}
			if got := cp.Epoch(); got != c.want || len(refused) != c.refuse {
				t.Errorf("epoch %d with %d refused, want %d with %d", got, len(refused), c.want, c.refuse)
			}
			for k, was := range entries {
				want := was
				if _, ok := refused[k]; ok {
					want = event.Acked{UID: uid, Deleted: was.Deleted, Position: was.Position, Time: was.Time}
				}
				if got := cp.Get(k); got != want {
					t.Errorf("%s is %+v, want %+v", k, got, want)
				}
			}
		})
	}
}
