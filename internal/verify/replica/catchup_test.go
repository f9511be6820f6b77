package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/normal"
)

// outrun is a stream that grows faster than a follower reads it.
type outrun struct {
	stream
	f *Follower
	m natsreader.Raw // the last message
}

func (o *outrun) LoadRaw(_ context.Context, _ string, yield func(natsreader.Raw) error) error {
	m, _, err := o.LastRaw(context.Background(), "")
	return errors.Join(err, yield(m))
}

func (o *outrun) LastRaw(context.Context, string) (natsreader.Raw, bool, error) {
	o.m.Position += 100
	time.AfterFunc(time.Millisecond, func() { o.f.change(func() { o.f.read[publish.Log{}] += 60 }) })
	return o.m, true, nil
}

// TestCatchUpOnABusyStream verifies that a follower reads up to the end at the time of the call. An
// earlier version waited forever if messages arrived faster than it read them.
func TestCatchUpOnABusyStream(t *testing.T) {
	for name, catchUp := range map[string]func(context.Context, *Follower) error{
		"all messages": func(ctx context.Context, f *Follower) error { return f.CatchUp(ctx) },
		"one object":   func(ctx context.Context, f *Follower) error { return f.CatchUpWith(ctx, event.Key{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := &outrun{}
				bus.f = newFollower(natsSource{stream: bus}, place{}, normal.Form{}, testDepth, time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := catchUp(ctx, bus.f); err != nil || bus.f.read[publish.Log{}] != 120 {
					t.Errorf("got %v at %d, want an end at 120", err, bus.f.read[publish.Log{}])
				}
			})
		})
	}
}

// TestPositionsThatGoBack verifies that a follower takes no message twice.
func TestPositionsThatGoBack(t *testing.T) {
	f := newFollower(nil, place{}, normal.Form{}, testDepth, time.Hour)
	taken := 0
	for i, want := range []error{nil, nil, ErrChanged, ErrChanged} {
		if err := f.advance(publish.Delivery{Position: []uint64{5, 7, 7, 6}[i]}, func() error { taken++; return nil }); !errors.Is(err, want) {
			t.Errorf("message %d: got %v, want %v", i, err, want)
		}
	}
	if taken != 2 {
		t.Errorf("%d messages were taken, want 2", taken)
	}
}
