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

func (o *outrun) LoadRaw(_ context.Context, _ string, yield func(*natsreader.Raw) error) error {
	m, err := o.LastRaw(context.Background(), "")
	return errors.Join(err, yield(m))
}

func (o *outrun) LastRaw(context.Context, string) (*natsreader.Raw, error) {
	o.m.Sequence += 100
	time.AfterFunc(time.Millisecond, func() { o.f.change(func() { o.f.read[publish.Log{}] += 60 }) })
	return &o.m, nil
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

// ending is a stream with the given ends, one for each lookup.
type ending struct {
	stream
	ends    []uint64
	lookups int
}

func (e *ending) LoadRaw(_ context.Context, _ string, yield func(*natsreader.Raw) error) error {
	e.lookups++
	return yield(&natsreader.Raw{Sequence: e.ends[min(e.lookups, len(e.ends))-1]})
}

// TestLookupsOfTheEnd verifies that a follower looks up the end of a stream only when it begins, and when
// no messages arrive, because the last message may be gone. Each lookup reads the last message of every
// object. An earlier version looked up the end every second.
func TestLookupsOfTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		ends []uint64
		want int
	}{
		"all messages arrive":      {[]uint64{100}, 1},
		"the last message is gone": {[]uint64{120, 100}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := &ending{ends: tc.ends}
				f := newFollower(natsSource{stream: bus}, place{}, normal.Form{}, testDepth, time.Hour)
				for i := range uint64(10) {
					time.AfterFunc(time.Duration(i+1)*recheckInterval*3/4, func() { f.change(func() { f.read[publish.Log{}] = 10 * (i + 1) }) })
				}
				if err := f.CatchUp(t.Context()); err != nil || f.read[publish.Log{}] != 100 || bus.lookups != tc.want {
					t.Errorf("got %v at %d with %d lookups, want %d", err, f.read[publish.Log{}], bus.lookups, tc.want)
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
