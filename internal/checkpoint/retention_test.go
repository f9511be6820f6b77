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

// purgerFunc is a fake Purger.
type purgerFunc func(k event.Key, upTo uint64) error

var _ Purger = purgerFunc(nil)

func (f purgerFunc) Purge(_ context.Context, k event.Key, upTo uint64) error { return f(k, upTo) }

// deletedAt returns a delete that the bus stored at a time, in Unix seconds.
func deletedAt(stored uint32, position uint64) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: "1", Deleted: true, Time: 1000 * int64(stored), Position: position}
}

func TestRetention(t *testing.T) {
	const now, after = 10_000, 1_000 // seconds
	failure := errors.New("bus down")
	for name, c := range map[string]struct {
		acked event.Acked
		purge func(*bench) error // what happens during the purge

		purged string
		left   event.Acked
		err    error
	}{
		"long ago":          {acked: deletedAt(now-after-1, 7), purged: "web up to 7"},
		"just long enough":  {acked: deletedAt(now-after, 7), purged: "web up to 7"},
		"not long ago":      {acked: deletedAt(now-after+1, 7), left: deletedAt(now-after+1, 7)},
		"when is not known": {acked: deletedAt(0, 7), left: deletedAt(0, 7)},
		"an event is after it": {
			acked: deletedAt(1, 6).Before(deletedAt(1, 7)), left: deletedAt(1, 6).Before(deletedAt(1, 7)),
		},
		"it exists": {
			acked: event.Acked{UID: uid, ResourceVersion: "1", Time: 1, Position: 7},
			left:  event.Acked{UID: uid, ResourceVersion: "1", Time: 1, Position: 7},
		},
		"the bus fails": {
			acked: deletedAt(1, 7), purge: func(*bench) error { return failure },
			purged: "web up to 7", left: deletedAt(1, 7), err: failure,
		},
		"recreated meanwhile": {
			acked: deletedAt(1, 7), purge: func(c *bench) error { c.Put(key("web"), at("9")); return nil },
			purged: "web up to 7", left: at("9"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			cp := newBench()
			cp.Put(key("web"), c.acked)
			var purged []string
			r := Retention{
				Checkpoint: cp.Checkpoint, After: after * time.Second, Now: func() time.Time { return time.Unix(now, 0) }, Log: slog.New(slog.DiscardHandler),
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
				t.Errorf("returned %d, want %d", n, want)
			}
			if got := cp.Get(key("web")); got != c.left {
				t.Errorf("the checkpoint has %+v, want %+v", got, c.left)
			}
		})
	}
}

// TestRetentionWhileLoading verifies that a load that read a delete before its purge does not
// restore the purged entry.
func TestRetentionWhileLoading(t *testing.T) {
	c := newBench()
	c.Put(key("web"), deletedAt(1, 7))
	r := Retention{
		Checkpoint: c.Checkpoint, Bus: purgerFunc(func(event.Key, uint64) error { return nil }), After: time.Second, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}
	_, err := c.Load(t.Context(), sourceFunc(func(ctx context.Context, yield func(event.Key, event.Acked) error) error {
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
		c, fails := newBench(), 2
		var purged []string
		r := Retention{
			Checkpoint: c.Checkpoint, After: 24 * time.Hour, Now: time.Now, Log: slog.New(slog.DiscardHandler),
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
		time.Sleep(20 * time.Hour) // on the synctest clock
		cancel()
		<-ended
		if want := []string{"old"}; !slices.Equal(purged, want) {
			t.Errorf("purged %v, want %v", purged, want)
		}
	})
}

// TestRetentionGoesOnAfterAnError verifies that a stuck partition of the bus does not block the
// purge of objects in other partitions.
func TestRetentionGoesOnAfterAnError(t *testing.T) {
	const objects = 20
	cp, stuck, asked := newBench(), errors.New("the partition is stuck"), 0
	for i := range objects {
		cp.Put(key(fmt.Sprint("web-", i)), deletedAt(1, uint64(i+1)))
	}
	r := Retention{
		Checkpoint: cp.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Bus: purgerFunc(func(_ event.Key, upTo uint64) error {
			if asked++; upTo%2 == 0 {
				return fmt.Errorf("purge: %w", stuck)
			}
			return nil
		}),
	}
	purged, err := r.Once(t.Context())
	if purged != objects/2 || !errors.Is(err, stuck) || asked != objects || cp.Len() != objects/2 {
		t.Errorf("of %d objects, %d were tried, %d purged and %d left, error %v; want all tried and half purged", objects, asked, purged, cp.Len(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	asked = 0
	if _, err := r.Once(ctx); err == nil || asked != 1 {
		t.Errorf("after the end of the context, %d objects were tried, error %v", asked, err)
	}
}

// TestRetentionLeavesTheNewest verifies that ErrNewest is not reported as an error, and that the
// next call retries the purge.
func TestRetentionLeavesTheNewest(t *testing.T) {
	cp, newest := newBench(), uint64(2)
	cp.Put(key("a"), deletedAt(1, 1))
	cp.Put(key("b"), deletedAt(1, 2))
	r := Retention{
		Checkpoint: cp.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Bus: purgerFunc(func(_ event.Key, upTo uint64) error {
			if upTo == newest {
				return fmt.Errorf("purge: %w", event.ErrNewest)
			}
			return nil
		}),
	}
	if purged, err := r.Once(t.Context()); purged != 1 || err != nil || cp.Get(key("b")) == (event.Acked{}) {
		t.Errorf("purged %d, error %v; want the one that is not the newest", purged, err)
	}
	newest = 3
	if purged, err := r.Once(t.Context()); purged != 1 || err != nil || cp.Len() != 0 {
		t.Errorf("purged %d, error %v; want the other one too", purged, err)
	}
}

// TestRetentionKeepsTheEpoch verifies that one event of the highest epoch stays, because only events
// store the epoch. That event can be purged as soon as another event of the epoch exists.
func TestRetentionKeepsTheEpoch(t *testing.T) {
	cp := newBench()
	of := func(epoch uint16, position uint64) event.Acked {
		a := deletedAt(1, position)
		a.Epoch = epoch
		return a
	}
	cp.Put(key("first"), of(1, 1))
	cp.Put(key("a"), of(2, 2))
	cp.Put(key("b"), of(2, 3))
	cp.Put(key("live"), at("9"))
	other := event.Key{Group: "example.com", Resource: "readings", Name: "a"}
	cp.Put(other, event.Acked{UID: uid, ResourceVersion: "1", Epoch: 7, Position: 4}) // an epoch of another resource
	r := Retention{
		Checkpoint: cp.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Bus: purgerFunc(func(event.Key, uint64) error { return nil }),
	}
	for range 2 {
		if _, err := r.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := content(cp); cp.Epochs()[pods] != 2 || cp.Len() != 3 {
			t.Errorf("left %q, epoch %d; want existing objects and one event of the epoch", got, cp.Epochs()[pods])
		}
	}
	cp.Put(key("later"), event.Acked{UID: uid, ResourceVersion: "12", Epoch: 2, Time: 1, Position: 9})
	if _, err := r.Once(t.Context()); err != nil || cp.Len() != 3 || cp.Epochs()[pods] != 2 {
		t.Errorf("left %q, epoch %d, %v; want only existing objects", content(cp), cp.Epochs()[pods], err)
	}
}

// TestRetentionAfterALoss verifies that nothing is purged until a load has shown what the bus lost.
// An earlier version purged the last event of an object whose delete the bus had lost.
func TestRetentionAfterALoss(t *testing.T) {
	c, losses := newBench(), uint64(0)
	c.PossibleLosses = func() uint64 { return losses }
	c.Put(key("web"), deletedAt(1, 7))
	purged := 0
	r := Retention{
		Checkpoint: c.Checkpoint, Bus: purgerFunc(func(event.Key, uint64) error { purged++; return nil }), After: time.Second, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}
	once := func(want error) {
		t.Helper()
		if _, err := r.Once(t.Context()); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	losses++
	once(errPossibleLosses)
	if _, err := c.Load(t.Context(), sourceFunc(func(context.Context, func(event.Key, event.Acked) error) error { return errors.New("bus down") })); err == nil {
		t.Error("the load succeeded")
	}
	once(errPossibleLosses)
	if purged > 0 {
		t.Error("purged an object whose delete the bus may have lost")
	}
	if _, err := c.Load(t.Context(), holds(map[event.Key]event.Acked{key("web"): deletedAt(1, 7)})); err != nil {
		t.Error(err)
	}
	once(nil)
	if purged != 1 {
		t.Errorf("purged %d objects after the load, want 1", purged)
	}
}

// TestALossDuringPurges verifies that purges end when the bus may have lost events, and that an object
// that a load showed in the meantime is not purged.
func TestALossDuringPurges(t *testing.T) {
	for name, c := range map[string]struct {
		during func(*bench, *uint64) // the first purge
		err    error
	}{
		"a loss": {func(_ *bench, losses *uint64) { *losses++ }, errPossibleLosses},
		"a loss and a load": {func(c *bench, losses *uint64) {
			*losses++
			_, _ = c.Load(t.Context(), holds(map[event.Key]event.Acked{key("a"): deletedAt(1, 7), key("b"): at("9")}))
		}, nil},
	} {
		cp, losses := newBench(), uint64(0)
		cp.PossibleLosses = func() uint64 { return losses }
		cp.Put(key("a"), deletedAt(1, 7))
		cp.Put(key("b"), deletedAt(1, 8))
		var purged []string
		r := Retention{
			Checkpoint: cp.Checkpoint, After: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Bus: purgerFunc(func(k event.Key, _ uint64) error {
				if purged = append(purged, k.Name); len(purged) == 1 {
					c.during(cp, &losses)
				}
				return nil
			}),
		}
		if n, err := r.Once(t.Context()); n != 1 || !errors.Is(err, c.err) || !slices.Equal(purged, []string{"a"}) {
			t.Errorf("%s: purged %v, %d in all, error %v", name, purged, n, err)
		}
	}
}
