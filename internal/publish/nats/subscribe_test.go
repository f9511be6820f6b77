package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// subscriber subscribes over its own connection.
type subscriber struct {
	*publishtest.Subscriber
	t   testing.TB
	bus *reader.Bus
}

func subscribe(t testing.TB, url string, o publish.SubscribeOptions) *subscriber {
	t.Helper()
	bus := read(t, url)
	return &subscriber{publishtest.Subscribe(t, bus, o), t, bus}
}

// want reads the next events, whose positions must be these.
func (s *subscriber) want(positions ...uint64) {
	s.t.Helper()
	for i, want := range positions {
		if got := s.Next(); got.Position != want {
			s.t.Fatalf("event %d of %d is %s at %d, want the one at %d", i, len(positions), got, got.Position, want)
		}
	}
}

// lost waits until the subscriber has noticed that its connection broke.
func (s *subscriber) lost() {
	s.t.Helper()
	poll.Holds(s.t, "disconnected", func() bool { return s.bus.Ready() != nil })
}

// writer publishes increasing versions of objects.
type writer struct {
	t    testing.TB
	bus  *Bus
	last map[string]uint64
	n    int
}

func newWriter(t testing.TB, o Options) *writer {
	t.Helper()
	o.Cluster = publishtest.Cluster
	w := &writer{t: t, bus: connect(t, o), last: map[string]uint64{}}
	waitReady(t, w.bus)
	return w
}

// put publishes the next version of each object and returns the positions.
func (w *writer) put(names ...string) []uint64 {
	w.t.Helper()
	var positions []uint64
	for _, name := range names {
		w.n++
		o := publishtest.Object{Name: name, Version: w.n, Data: fmt.Sprintf("état %d", w.n)}
		w.last[name] = publishOK(w.t, w.bus, o.Message(w.t, w.last[name]))
		positions = append(positions, w.last[name])
	}
	return positions
}

func names(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}

// TestSubscribe verifies that events published in either mode arrive unchanged, with their keys.
func TestSubscribe(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			url := natstest.Start(t).URL
			bus := connect(t, Options{Connection: Connection{URLs: []string{url}, Cluster: publishtest.Cluster}, ContentMode: mode})
			marker, err := event.Builder{Cluster: publishtest.Cluster}.Marker(event.SnapshotStarted, publishtest.Resource, "s1", 0, someTime)
			if err != nil {
				t.Fatal(err)
			}
			sent := []*event.Message{
				marker,
				publishtest.Object{Name: "a", Version: 1, Data: "x"}.Message(t, 0),
				publishtest.Object{Name: "\u009b2J é", Version: 2, Data: "\u009b%\"é"}.Message(t, 0),
				publishtest.Object{Name: "a", Version: 3, Deleted: true}.Message(t, firstOf(t, bus)+1),
			}
			for _, m := range sent {
				publishOK(t, bus, m)
			}
			s := subscribe(t, url, publish.SubscribeOptions{From: publish.FromStart})
			for i, want := range sent {
				got := s.Next()
				if m := got.Message; m == nil || m.ID != want.ID || m.Key != want.Key || m.Marker != want.Marker || string(m.Data) != string(want.Data) {
					t.Fatalf("got %+v, want %+v", m, want)
				}
				if g, w := fmt.Sprint(publishtest.Attributes(got.Message)), fmt.Sprint(publishtest.Attributes(want)); g != w {
					t.Errorf("attributes %s, want %s", g, w)
				}
				if got.Position != firstOf(t, bus)+uint64(i) || got.Cluster != publishtest.Cluster || got.Stored.IsZero() || !strings.HasPrefix(got.Subject, "kuberelay.test=2Ecluster.") {
					t.Errorf("delivery %+v", got.Delivery)
				}
			}
		})
	}
}

// TestSubscribeFromNow verifies that FromNow yields no older events, but every event since the
// start, even if the connection breaks. The JetStream client's ordered consumer starts again with
// new messages if it received none before the break.
func TestSubscribeFromNow(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	w.put("a", "b")
	s := subscribe(t, proxy.Addr(), publish.SubscribeOptions{From: publish.FromNow})
	s.Reading()
	proxy.Refuse()
	s.lost()
	away := w.put("a", "c", "c")
	proxy.Pass()
	s.want(away...)
	s.want(w.put("b")...)
}

// TestSubscribeRestart verifies that a subscription continues after a restart of the server, both
// while it reads a backlog and while it has nothing to read. The server keeps its port and files.
func TestSubscribeRestart(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	backlog := w.put(names("web", 3*200)...)
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart})
	s.want(backlog[:100]...)
	ns.Restart()
	s.want(backlog[100:]...)
	waitReconnected(t, w.bus)
	s.want(w.put("web-1", "web-2")...)
	ns.Restart()
	again := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	again.n, again.last = w.n, w.last
	s.want(again.put("web-1", "web-3", "new")...)
}

// TestSubscribeLast verifies that FromLast yields each object once, even if the connection breaks
// halfway. The client's ordered consumer would continue with every event from there on.
func TestSubscribeLast(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	all := names("web", 2*200)
	w.put(all...)
	w.put(all[:50]...)
	w.put(all[:200]...)
	last := slices.Sorted(func(yield func(uint64) bool) {
		for _, position := range w.last {
			if !yield(position) {
				return
			}
		}
	})
	s := subscribe(t, proxy.Addr(), publish.SubscribeOptions{From: publish.FromLast})
	s.Reading()
	s.want(last[:10]...)
	proxy.Refuse()
	s.lost()
	proxy.Pass()
	s.want(last[10 : len(last)-10]...)
	s.Reading() // the subscription reads again
	// While the connection is down, three objects change: one that was yielded, one that was not
	// yielded yet, and a new one. Their earlier events are no longer their last ones.
	proxy.Refuse()
	s.lost()
	late := all[200-1] // this object is at the end of last
	away := w.put(late, late, all[200], "new")
	proxy.Pass()
	s.want(last[len(last)-10 : len(last)-1]...)
	got := s.Next()
	if got.Position == last[len(last)-1] { // the message was already in transit
		got = s.Next()
	}
	if got.Position != away[0] {
		t.Fatalf("got %d, want %d", got.Position, away[0])
	}
	s.want(away[1:]...)
	s.want(w.put("new")...)
}

// TestSubscribeLastOfNothing verifies that FromLast yields new events even if no event matches at
// first.
func TestSubscribeLastOfNothing(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	w.put("a", "b")
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromLast, Filters: []string{subjectOf(publishtest.Object{Name: "c"}.Key())}})
	s.Reading()
	s.want(w.put("a", "c", "b", "c")[1])
}

// TestSubscribeToMessagesThatAreRemoved verifies that a subscription catches up if the messages at the end
// are removed before it has read them. An earlier version waited for these messages until another
// message arrived.
func TestSubscribeToMessagesThatAreRemoved(t *testing.T) {
	for name, o := range map[string]publish.SubscribeOptions{"last": {From: publish.FromLast}, "start": {From: publish.FromStart}} {
		t.Run(name, func(t *testing.T) {
			ns := natstest.Start(t)
			w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
			w.put(names("web", 5*200)...) // more than the server sends at once
			stream, err := observe(t, ns.URL).Stream(t.Context(), "KUBERELAY")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			errDone := errors.New("done")
			o.CaughtUp = func(publish.Cursor) error { return errDone }
			received := 0
			err = read(t, ns.URL).Subscribe(ctx, o, func(*event.Message, publish.Delivery) error {
				if received++; received > 1 {
					return nil
				}
				return stream.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(publishtest.Object{Name: "web-999"}.Key())))
			})
			if !errors.Is(err, errDone) || received != 999 {
				t.Errorf("got %d events, then %v", received, err)
			}
		})
	}
}

// TestSubscribeFilters verifies that the server applies the filters to 1,100 objects. A direct get of the last
// messages of several subjects would be limited to 1,024.
func TestSubscribeFilters(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	many := names("web", 1100)
	w.put(many...)
	want := w.put(many...)
	filter := func(namespace string) string {
		k := publishtest.Object{Name: "x"}.Key()
		k.Namespace = namespace
		return strings.TrimSuffix(subjectOf(k), "x") + "*"
	}
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromLast, Filters: []string{filter("default"), filter("other")}})
	s.want(want...)
	none := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart, Filters: []string{filter("other"), "kuberelay.x.>"}})
	none.Reading()
	nc, err := natsgo.Connect(ns.URL, natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish("kuberelay.x.y", nil); err != nil {
		t.Fatal(err)
	}
	if got := none.Next(); got.Err == nil || got.Subject != "kuberelay.x.y" {
		t.Errorf("got %s of subject %q, want a foreign message", got, got.Subject)
	}
}

// TestSubscribeConsumerLost verifies that a subscription recreates a consumer that the server
// deleted, for example after a leader election, and continues at its position.
func TestSubscribeConsumerLost(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromNow})
	s.Reading()
	s.want(w.put("a", "b")...)
	js := observe(t, ns.URL)
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	s.want(w.put("a", "c")...)
}

// TestSubscribeNoStream verifies that a subscriber waits for the stream and does not create it.
func TestSubscribeNoStream(t *testing.T) {
	ns := natstest.Start(t)
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromNow})
	missing := func(err error) bool { return errors.Is(err, reader.ErrStreamMissing) }
	s.Notice("the stream is missing", missing)
	names := observe(t, ns.URL).StreamNames(t.Context())
	for name := range names.Name() {
		t.Errorf("there is a stream %q", name)
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	// The subscription yields the first events of the new stream.
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	s.want(w.put("a", "b")...)
	s.Reading()

	// After the stream is deleted and recreated, the subscription reads it from the start.
	w.bus.Close() // otherwise the bus would recreate the stream before the subscriber notices
	if err := observe(t, ns.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	s.Notice("the stream is missing again", missing)
	w = newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	s.want(w.put("c")...)
}

// TestSubscribeForeign verifies that messages that are not Kuberelay events are reported and do not
// block events.
func TestSubscribeForeign(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	js := observe(t, ns.URL)
	for _, subject := range []string{"kuberelay.x", subjectOf(publishtest.Object{Name: "b"}.Key())} {
		if _, err := js.Publish(t.Context(), subject, []byte("by hand")); err != nil {
			t.Fatal(err)
		}
	}
	positions := w.put("a")
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart})
	for want := positions[0] - 2; want < positions[0]; want++ {
		if got := s.Next(); got.Err == nil || got.Position != want {
			t.Errorf("got %s at %d, want a foreign message at %d", got, got.Position, want)
		}
	}
	s.want(positions...)
}

func TestSubscribeEnds(t *testing.T) {
	ns := natstest.Start(t)
	newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}}).put("a")
	end := func(t *testing.T, s *subscriber, want error) {
		t.Helper()
		if err := s.Ended(); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	t.Run("context", func(t *testing.T) {
		s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromNow})
		s.Reading()
		s.Cancel()
		end(t, s, context.Canceled)
	})
	t.Run("context, while the server cannot be reached", func(t *testing.T) {
		proxy := faultproxy.Start(t, ns.Addr())
		proxy.Refuse()
		s := subscribe(t, proxy.Addr(), publish.SubscribeOptions{From: publish.FromNow})
		s.Notice("not connected", func(err error) bool { return err != nil && strings.Contains(err.Error(), proxy.Addr()) })
		s.Cancel()
		end(t, s, context.Canceled)
	})
	t.Run("closed", func(t *testing.T) {
		s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromNow})
		s.Reading()
		if err := s.bus.Close(); err != nil {
			t.Fatal(err)
		}
		end(t, s, errClosed)
	})
	t.Run("yield", func(t *testing.T) {
		bus := read(t, ns.URL)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		err := bus.Subscribe(ctx, publish.SubscribeOptions{From: publish.FromLast}, func(*event.Message, publish.Delivery) error { return enough })
		if err != enough { //nolint:errorlint // must be unchanged
			t.Errorf("got %v, want %v", err, enough)
		}
	})
	t.Run("misconfigured later", func(t *testing.T) {
		other := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "someone", "secret" })
		other.Stop()
		s := subscribe(t, other.URL, publish.SubscribeOptions{From: publish.FromNow})
		s.Notice("not connected", func(err error) bool { return err != nil })
		other.Restart()
		end(t, s, ErrMisconfigured)
	})
}

// TestReaderOfAnotherStream verifies that a reader does not check the settings of the stream.
func TestReaderOfAnotherStream(t *testing.T) {
	ns := natstest.Start(t)
	newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}, History: 3}).put("a")
	bus := read(t, ns.URL)
	poll.Holds(t, "ready", func() bool { return bus.Ready() == nil })
}

// TestSubscribeFromTime verifies that FromTime yields the events that the stream stored at that time
// or later, even if the connection breaks before the first event.
func TestSubscribeFromTime(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{Connection: Connection{URLs: []string{ns.URL}}})
	positions := w.put("a", "b", "a", "c")
	all := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart})
	var stored []time.Time
	for range positions {
		stored = append(stored, all.Next().Stored)
	}
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromTime, Since: stored[2]})
	s.want(positions[2:]...)
	late := subscribe(t, proxy.Addr(), publish.SubscribeOptions{From: publish.FromTime, Since: stored[3].Add(1)})
	late.Reading()
	proxy.Refuse()
	late.lost()
	away := w.put("a", "d")
	proxy.Pass()
	late.want(away...)
	proxy.Refuse()
	late.lost()
	away = append(away, w.put("a")...)
	proxy.Pass()
	late.want(away[2:]...)
	s.want(away...)
}
