package publishtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

func testAcknowledged(t *testing.T, bus Bus) {
	p := open(t, bus)
	m := Object{Name: "web", Version: 1}.Message(t, 0)
	position := mustPublish(t, p, m)
	if position == 0 {
		t.Error("position is 0")
	}
	want := []Event{{m.ID, position, string(m.Data)}}
	wantEvents(t, bus, m.Key, want)
	next := Object{Name: "web", Version: 2}.Message(t, position)
	if got := mustPublish(t, p, next); got <= position {
		t.Errorf("position %d after %d", got, position)
	}
}

func testMarkers(t *testing.T, bus Bus) {
	p := open(t, bus)
	for _, typ := range []event.Type{event.SnapshotStarted, event.SnapshotCompleted, event.SnapshotStarted} {
		m, err := event.Builder{Cluster: Cluster}.Marker(typ, Resource, "session", 0, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		m.Expected = 17 // markers ignore Expected
		mustPublish(t, p, m)
	}
}

func testOrder(t *testing.T, bus Bus) {
	p := open(t, bus)
	const objects, versions = 50, 8
	all := newCompletions(t)
	for i := range objects {
		publishVersions(t, p, all, fmt.Sprintf("web-%d", i), versions)
	}
	for _, c := range all.wait(objects) {
		if c.err != nil {
			t.Fatalf("publish: %v", c.err)
		}
	}
	for i := range objects {
		o := Object{Name: fmt.Sprintf("web-%d", i)}
		events := read(t, bus, o.Key())
		if len(events) != versions {
			t.Fatalf("the bus holds %d events of %s, want %d", len(events), o.Key(), versions)
		}
		for v, e := range events {
			if want := fmt.Sprintf("uid-of-%s.%d", o.Name, v+1); e.ID != want {
				t.Errorf("event %d of %s has id %s, want %s", v, o.Key(), e.ID, want)
			}
		}
	}
}

// publishVersions publishes versions of one object in the background, each after the acknowledgement
// of the previous one. all receives one completion at the end, for the last version or the first
// error.
func publishVersions(t *testing.T, p publish.Publisher, all *completions, name string, versions int) {
	next := make(chan completion, 1)
	go func() {
		c := completion{}
		for v := 1; v <= versions && c.err == nil; v++ {
			c.m = Object{Name: name, Version: v}.Message(t, c.position)
			p.Publish(t.Context(), c.m, func(position uint64, err error) { next <- completion{c.m, position, err} })
			c = <-next
		}
		all.of(c.m)(c.position, c.err)
	}()
}

func testMany(t *testing.T, bus Bus) {
	p := open(t, bus)
	const objects = 5_000
	all := newCompletions(t)
	for i := range objects {
		m := Object{Name: fmt.Sprintf("web-%d", i), Version: i + 1}.Message(t, 0)
		p.Publish(t.Context(), m, all.of(m))
	}
	positions := map[uint64]bool{}
	for _, c := range all.wait(objects) {
		switch {
		case errors.Is(c.err, publish.ErrNotSent): // the bus is slow, and the publisher limits the messages in flight
			c.position = publishUntilStored(t, p, c.m)
		case c.err != nil:
			t.Fatalf("publish: %v", c.err)
		}
		positions[c.position] = true
	}
	if bus.CompareAndSet && len(positions) != objects {
		t.Errorf("%d messages have %d positions", objects, len(positions))
	}
	all.none()
}

func testContext(t *testing.T, bus Bus) {
	p := open(t, bus)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	all := newCompletions(t)
	m := Object{Name: "web", Version: 1}.Message(t, 0)
	p.Publish(ctx, m, all.of(m))
	c := all.wait(1)[0] // the publisher may ignore the canceled context, but must call done
	if c.err != nil && !errors.Is(c.err, context.Canceled) {
		t.Errorf("error is %v, want %v", c.err, context.Canceled)
	}
	if c.err == nil {
		wantEvents(t, bus, m.Key, []Event{{m.ID, c.position, string(m.Data)}})
		return
	}
	mustPublish(t, p, m)
}

func testTooLarge(t *testing.T, bus Bus) {
	need(t, bus.TooLarge > 0, "limit on size")
	p := open(t, bus)
	large := Object{Name: "large", Version: 1, Data: strings.Repeat("x", bus.TooLarge)}.Message(t, 0)
	if _, err := publishNow(t, p, large); !errors.Is(err, publish.ErrTooLarge) {
		t.Fatalf("error is %v, want %v", err, publish.ErrTooLarge)
	}
	wantEvents(t, bus, large.Key, nil)
	mustPublish(t, p, Object{Name: "small", Version: 1}.Message(t, 0))
	mustPublish(t, p, Object{Name: "large", Version: 1}.Message(t, 0)) // without data, the object's event is small enough
}

// testTooLargeAtOnce verifies that a publisher doesn't deadlock when several messages are too large.
// The forwarder publishes their metadata instead. That publish can block until other completions
// make room.
func testTooLargeAtOnce(t *testing.T, bus Bus) {
	need(t, bus.TooLarge > 0, "limit on size")
	const large, others = 3, 50 // in every partition, on a bus with partitions
	p, all := open(t, bus), newCompletions(t)
	refused, room := make(chan struct{}, large), make(chan struct{})
	for i := range large {
		o := Object{Name: fmt.Sprintf("large-%d", i), Version: 1}
		remains := o.Message(t, 0)
		o.Data = strings.Repeat("x", bus.TooLarge)
		m := o.Message(t, 0)
		go p.Publish(t.Context(), m, func(_ uint64, err error) { // Publish itself may block
			if !errors.Is(err, publish.ErrTooLarge) {
				t.Errorf("error is %v, want %v", err, publish.ErrTooLarge)
			}
			refused <- struct{}{}
			select {
			case <-room:
			case <-t.Context().Done():
			}
			p.Publish(t.Context(), remains, all.of(remains))
		})
	}
	published := func(n int) {
		t.Helper()
		for _, c := range all.wait(n) {
			if c.err != nil {
				t.Errorf("publish %s: %v", c.m.ID, c.err)
			}
		}
	}
	timeout := time.After(limit)
	for range large {
		select {
		case <-refused:
		case <-timeout:
			t.Fatalf("not all were refused within %s", limit)
		}
	}
	for i := range others {
		m := Object{Name: fmt.Sprintf("other-%d", i), Version: 1}.Message(t, 0)
		p.Publish(t.Context(), m, all.of(m))
	}
	published(others)
	close(room)
	published(large)
	all.none()
}

// testLoaded verifies that Load returns every acknowledged event, both on the publisher that wrote
// the events and on the next one.
func testLoaded(t *testing.T, bus Bus) {
	p := open(t, bus)
	if _, can := p.(loader); !can {
		t.Skip("this bus cannot be loaded from")
	}
	digest, other := event.Digest{0xab, 15: 0x01}, event.Digest{0xcd, 15: 0x02}
	want := map[event.Key]event.Acked{}
	put := func(o Object) {
		m := o.Message(t, want[o.Key()].Position)
		if m.Acked.Digest != o.Digest {
			t.Fatalf("the message has the digest %q, want %q", m.Acked.Digest, o.Digest)
		}
		want[m.Key] = acked(m, mustPublish(t, p, m))
	}
	put(Object{Name: "whole", Version: 1})
	put(Object{Name: "projected", Version: 1, Digest: digest})
	put(Object{Name: "another", Version: 1, Digest: digest})
	put(Object{Name: "another", Version: 2, Digest: other})
	put(Object{Name: "projected-no-more", Version: 1, Digest: digest})
	put(Object{Name: "projected-no-more", Version: 2})
	put(Object{Name: "gone", Version: 1, Digest: digest, Epoch: 2})
	put(Object{Name: "gone", Version: 1, Digest: digest, Epoch: 2, Deleted: true})
	wantLoaded(t, p, want)
	wantLoaded(t, p, want) // the first load may return state that the publisher read at its start

	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = open(t, bus)
	wantLoaded(t, p, want)
	wantLoaded(t, p, want)
}

// loader is a publisher that can load the last event of each object from its bus.
type loader interface {
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
}

func wantLoaded(t *testing.T, p publish.Publisher, want map[event.Key]event.Acked) {
	t.Helper()
	got := map[event.Key]event.Acked{}
	err := p.(loader).Load(t.Context(), func(k event.Key, a event.Acked) error {
		if a.Deleted {
			a.Time = want[k].Time // the test doesn't know when the bus stored the event
		}
		got[k] = a
		return nil
	})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("loaded %+v of %s, want %+v", got[k], k, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("loaded %d objects, want %d: %v", len(got), len(want), got)
	}
}

func testClosed(t *testing.T, bus Bus) {
	p := open(t, bus)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if p.Ready() == nil {
		t.Error("ready although closed")
	}
	if _, err := publishNow(t, p, Object{Name: "web", Version: 1}.Message(t, 0)); err == nil {
		t.Error("published although closed")
	}
}

func testCloseInFlight(t *testing.T, bus Bus) {
	need(t, bus.Freeze != nil, "way to freeze it")
	p := open(t, bus)
	bus.Freeze(t)
	const objects = 500
	all := newCompletions(t)
	for i := range objects {
		m := Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		p.Publish(t.Context(), m, all.of(m))
	}
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := len(all.ch); got != objects {
		t.Errorf("%d completions of %d were called when Close returned", got, objects)
	}
	for _, c := range all.wait(objects) {
		if c.err == nil {
			t.Errorf("the publisher reports %s as stored, although the bus was frozen", c.m.ID)
		}
	}
	bus.Thaw(t)
	all.none()
}

func read(t *testing.T, bus Bus, k event.Key) []Event {
	t.Helper()
	if bus.Read == nil {
		t.Skip("this bus cannot be read back")
	}
	return bus.Read(t, k)
}

func wantEvents(t *testing.T, bus Bus, k event.Key, want []Event) {
	t.Helper()
	got := read(t, bus, k)
	if len(got) != len(want) {
		t.Fatalf("the bus holds %d events of %s, want %d: %v", len(got), k, len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d of %s is %v, want %v", i, k, got[i], want[i])
		}
	}
}
