package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// purgerFunc is a bus as Retention sees it.
type purgerFunc func(k event.Key, upTo uint64) error

var _ Purger = purgerFunc(nil)

func (f purgerFunc) Purge(_ context.Context, k event.Key, upTo uint64) error { return f(k, upTo) }

// deletedAt is a delete that the bus stored at that second.
func deletedAt(stored uint32, position uint64) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: "1", Deleted: true, Stored: stored, Position: position}
}

func TestRetention(t *testing.T) {
	const now, after = 10_000, 1_000 // seconds
	failure := errors.New("bus down")
	for name, c := range map[string]struct {
		acked event.Acked
		purge func(*Checkpoint) error // what happens during the purge

		purged string
		left   event.Acked
		err    error
	}{
		"long ago":          {acked: deletedAt(now-after-1, 7), purged: "web up to 7"},
		"just long enough":  {acked: deletedAt(now-after, 7), purged: "web up to 7"},
		"not long ago":      {acked: deletedAt(now-after+1, 7), left: deletedAt(now-after+1, 7)},
		"when is not known": {acked: deletedAt(0, 7), left: deletedAt(0, 7)},
		"it exists": {
			acked: event.Acked{UID: uid, ResourceVersion: "1", Stored: 1, Position: 7},
			left:  event.Acked{UID: uid, ResourceVersion: "1", Stored: 1, Position: 7},
		},
		"the bus fails": {
			acked: deletedAt(1, 7), purge: func(*Checkpoint) error { return failure },
			purged: "web up to 7", left: deletedAt(1, 7), err: failure,
		},
		"recreated meanwhile": {
			acked: deletedAt(1, 7), purge: func(c *Checkpoint) error { c.Put(key("web"), at("9")); return nil },
			purged: "web up to 7", left: at("9"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			cp := New()
			cp.Put(key("web"), c.acked)
			var purged []string
			r := Retention{
				Checkpoint: cp, After: after * time.Second, Now: func() time.Time { return time.Unix(now, 0) }, Log: slog.New(slog.DiscardHandler),
				Bus: purgerFunc(func(k event.Key, upTo uint64) error {
					purged = append(purged, fmt.Sprintf("%s up to %d", k.Name, upTo))
					if c.purge == nil {
						return nil
					}
					return c.purge(cp)
				}),
			}
			n, err := r.Once(t.Context())
			if got := strings.Join(purged, " "); got != c.purged || !errors.Is(err, c.err) {
				t.Errorf("purged %q, error %v; want %q, %v", got, err, c.purged, c.err)
			}
			if want := len(purged); err == nil && n != want {
				t.Errorf("tells of %d, want %d", n, want)
			}
			if got := cp.Get(key("web")); got != c.left {
				t.Errorf("the checkpoint has %+v, want %+v", got, c.left)
			}
		})
	}
}

// TestRetentionWhileLoading: a checkpoint that is loaded meanwhile may have been
// read before the purge, and must not bring back what was purged.
func TestRetentionWhileLoading(t *testing.T) {
	c := New()
	c.Put(key("web"), deletedAt(1, 7))
	r := Retention{
		Checkpoint: c, Bus: purgerFunc(func(event.Key, uint64) error { return nil }), After: time.Second, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}
	err := c.Load(t.Context(), sourceFunc(func(ctx context.Context, yield func(event.Key, event.Acked) error) error {
		if err := yield(key("web"), deletedAt(1, 7)); err != nil {
			return err
		}
		_, err := r.Once(ctx)
		return err
	}))
	if got := c.Get(key("web")); got != (event.Acked{}) || err != nil {
		t.Errorf("got %+v, error %v; want nothing", got, err)
	}
}

func TestRetentionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, fails := New(), 2
		var purged []string
		r := Retention{
			Checkpoint: c, After: 24 * time.Hour, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Bus: purgerFunc(func(k event.Key, _ uint64) error {
				if fails--; fails >= 0 {
					return errors.New("bus down")
				}
				purged = append(purged, k.Name)
				return nil
			}),
		}
		c.Put(key("old"), deletedAt(uint32(time.Now().Add(-48*time.Hour).Unix()), 1))
		c.Put(key("new"), deletedAt(uint32(time.Now().Unix()), 2))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		time.Sleep(20 * time.Hour) // of the test's clock
		cancel()
		<-ended
		if want := []string{"old"}; !slices.Equal(purged, want) {
			t.Errorf("purged %v, want %v", purged, want)
		}
	})
}

// TestRetentionKeepsTheEpoch: it is nowhere but on the events. All but one of the
// highest may go, and that one when there is another.
func TestRetentionKeepsTheEpoch(t *testing.T) {
	cp := New()
	of := func(epoch uint16, position uint64) event.Acked {
		a := deletedAt(1, position)
		a.Epoch = epoch
		return a
	}
	cp.Put(key("first"), of(1, 1))
	cp.Put(key("a"), of(2, 2))
	cp.Put(key("b"), of(2, 3))
	cp.Put(key("live"), at("9"))
	r := Retention{
		Checkpoint: cp, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
	}
	for range 2 {
		if _, err := r.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := content(cp); cp.Epoch() != 2 || cp.Len() != 2 {
			t.Errorf("left %q, epoch %d; want what exists and one of the epoch", got, cp.Epoch())
		}
	}
	cp.Put(key("later"), event.Acked{UID: uid, ResourceVersion: "12", Epoch: 2, Stored: 1, Position: 9})
	if _, err := r.Once(t.Context()); err != nil || cp.Len() != 2 || cp.Epoch() != 2 {
		t.Errorf("left %q, epoch %d, %v; want only what exists", content(cp), cp.Epoch(), err)
	}
}
