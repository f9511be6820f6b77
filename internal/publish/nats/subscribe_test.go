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
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/faultproxy"
	"github.com/kuberelay/kuberelay/internal/publish/publishtest"
)

// subscriber subscribes over a connection of its own.
type subscriber struct {
	*publishtest.Subscriber
	t   testing.TB
	bus *Bus
}

func subscribe(t testing.TB, url string, o publish.SubscribeOptions) *subscriber {
	t.Helper()
	bus := connect(t, Options{URLs: []string{url}, ReadOnly: true})
	return &subscriber{publishtest.Subscribe(t, bus, o), t, bus}
}

// want reads as many events as there are positions, which must be theirs.
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
	waitFor(s.t, "disconnected", func() bool { return s.bus.Ready() != nil })
}

// writer publishes states of objects in turn.
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

// put publishes the next state of each object and gives their positions.
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

// What was published in either mode arrives as it was, with its key.
func TestSubscribe(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		t.Run(string(mode), func(t *testing.T) {
			url := natstest.Start(t).URL
			bus := connect(t, Options{URLs: []string{url}, Cluster: publishtest.Cluster, ContentMode: mode})
			marker, err := event.Builder{Cluster: publishtest.Cluster}.Marker(event.SnapshotStarted, publishtest.Resource, "s1", 0, someTime)
			if err != nil {
				t.Fatal(err)
			}
			sent := []*event.Message{
				marker,
				publishtest.Object{Name: "a", Version: 1, Data: "x"}.Message(t, 0),
				publishtest.Object{Name: "\u009b2J é", Version: 2, Data: "\u009b%\"é"}.Message(t, 0),
				publishtest.Object{Name: "a", Version: 3, Deleted: true}.Message(t, 2),
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
				if got.Position != uint64(i+1) || got.Cluster != publishtest.Cluster || got.Stored.IsZero() || !strings.HasPrefix(got.Subject, "kuberelay.test=2Ecluster.") {
					t.Errorf("delivery %+v", got.Delivery)
				}
			}
		})
	}
}

// From now means nothing older, and everything since, break or no break. The
// JetStream client's ordered consumer begins anew with what is new then, if it has
// not seen anything before the break.
func TestSubscribeFromNow(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{URLs: []string{ns.URL}})
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

// The server restarts on the same port and files while a backlog is being read, and
// once more when there is nothing to read.
func TestSubscribeRestart(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}})
	backlog := w.put(names("web", 3*subscribeBatch)...)
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart})
	s.want(backlog[:100]...)
	ns.Restart()
	s.want(backlog[100:]...)
	waitReconnected(t, w.bus)
	s.want(w.put("web-1", "web-2")...)
	ns.Restart()
	again := newWriter(t, Options{URLs: []string{ns.URL}})
	again.n, again.last = w.n, w.last
	s.want(again.put("web-1", "web-3", "new")...)
}

// Last gives each object once, also where the connection breaks half-way: the
// client's ordered consumer would go on with every event from there on.
func TestSubscribeLast(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{URLs: []string{ns.URL}})
	all := names("web", 2*subscribeBatch)
	w.put(all...)
	w.put(all[:50]...)
	w.put(all[:subscribeBatch]...)
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
	s.Reading() // again
	// One that was seen, one that is still to come and one that is new change while
	// the connection is down. What each was before is not its last state any more.
	proxy.Refuse()
	s.lost()
	late := all[subscribeBatch-1] // at the end of last
	away := w.put(late, late, all[subscribeBatch], "new")
	proxy.Pass()
	s.want(last[len(last)-10 : len(last)-1]...)
	got := s.Next()
	if got.Position == last[len(last)-1] { // it was on its way already
		got = s.Next()
	}
	if got.Position != away[0] {
		t.Fatalf("got %d, want %d", got.Position, away[0])
	}
	s.want(away[1:]...)
	s.want(w.put("new")...)
}

// Nothing is in the way of live events where there is nothing to begin with.
func TestSubscribeLastOfNothing(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}})
	w.put("a", "b")
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromLast, Filters: []string{subjectOf(publishtest.Object{Name: "c"}.Key())}})
	s.Reading()
	s.want(w.put("a", "c", "b", "c")[1])
}

// Filters are heeded by the server: of 1,100 objects, which is more than the server
// looks up at once elsewhere, two subsets.
func TestSubscribeFilters(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}})
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
	nc, err := natsgo.Connect(ns.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish("kuberelay.x.y", nil); err != nil {
		t.Fatal(err)
	}
	if got := none.Next(); got.Err == nil || got.Subject != "kuberelay.x.y" {
		t.Errorf("got %s of subject %q, want what is foreign", got, got.Subject)
	}
}

// A consumer that the server has forgotten, as after a change of leader, is made
// again where it was.
func TestSubscribeConsumerLost(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}})
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

// A subscriber waits for the stream, and does not make it.
func TestSubscribeNoStream(t *testing.T) {
	ns := natstest.Start(t)
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromNow})
	missing := func(err error) bool { return errors.Is(err, ErrStreamMissing) }
	s.Notice("the stream is missing", missing)
	names := observe(t, ns.URL).StreamNames(t.Context())
	for name := range names.Name() {
		t.Errorf("there is a stream %q", name)
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	// Whatever comes first is after the beginning.
	w := newWriter(t, Options{URLs: []string{ns.URL}})
	s.want(w.put("a", "b")...)
	s.Reading()

	// Removed and made anew: positions begin again.
	if err := observe(t, ns.URL).DeleteStream(t.Context(), "KUBERELAY"); err != nil {
		t.Fatal(err)
	}
	s.Notice("the stream is missing again", missing)
	w = newWriter(t, Options{URLs: []string{ns.URL}})
	s.want(w.put("c")...)
}

// What is no event of ours is reported, and in nobody's way.
func TestSubscribeForeign(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}})
	js := observe(t, ns.URL)
	for _, subject := range []string{"kuberelay.x", subjectOf(publishtest.Object{Name: "b"}.Key())} {
		if _, err := js.Publish(t.Context(), subject, []byte("by hand")); err != nil {
			t.Fatal(err)
		}
	}
	positions := w.put("a")
	s := subscribe(t, ns.URL, publish.SubscribeOptions{From: publish.FromStart})
	for want := range uint64(2) {
		if got := s.Next(); got.Err == nil || got.Position != want+1 {
			t.Errorf("got %s at %d, want what is foreign at %d", got, got.Position, want+1)
		}
	}
	s.want(positions...)
}

// lossy is a consumer whose second message got lost on its way.
type lossy struct{ jetstream.Consumer }

func (lossy) Messages(...jetstream.PullMessagesOpt) (jetstream.MessagesContext, error) {
	return &lossyMessages{}, nil
}

type lossyMessages struct {
	jetstream.MessagesContext
	n uint64
}

// Next gives messages 1 and 3, and no more.
func (l *lossyMessages) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	l.n++
	switch l.n {
	case 1:
		return numbered{n: 1}, nil
	case 2:
		return numbered{n: 3}, nil
	}
	return nil, errors.New("no more")
}

func (*lossyMessages) Stop() {}

type numbered struct {
	jetstream.Msg
	n uint64
}

func (m numbered) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: m.n, Stream: m.n + 10}}, nil
}

func (m numbered) Subject() string { return "kuberelay" }

// A gap ends the consumer before what follows it is taken.
func TestSubscribeGap(t *testing.T) {
	var foreign []uint64
	s := subscription{opts: publish.SubscribeOptions{Foreign: func(d publish.Delivery, _ error) { foreign = append(foreign, d.Position) }}}
	if err := s.read(t.Context(), lossy{}, false); err == nil || s.seen != 11 || !slices.Equal(foreign, []uint64{11}) {
		t.Errorf("got %v at %d after %d, want an error at 11 after [11]", err, s.seen, foreign)
	}
}

func TestSubscribeEnds(t *testing.T) {
	ns := natstest.Start(t)
	newWriter(t, Options{URLs: []string{ns.URL}}).put("a")
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
		bus := connect(t, Options{URLs: []string{ns.URL}, ReadOnly: true})
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		err := bus.Subscribe(ctx, publish.SubscribeOptions{From: publish.FromLast}, func(*event.Message, publish.Delivery) error { return enough })
		if err != enough { //nolint:errorlint // as it is
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

func TestReadOnly(t *testing.T) {
	ns := natstest.Start(t)
	w := newWriter(t, Options{URLs: []string{ns.URL}, History: 3}) // a subscriber need not know
	w.put("a")
	bus := connect(t, Options{URLs: []string{ns.URL}, ReadOnly: true})
	waitReady(t, bus)
	if _, err := publishNow(t, bus, publishtest.Object{Name: "b", Version: 1}.Message(t, 0)); !errors.Is(err, errReadOnly) {
		t.Errorf("got %v, want %v", err, errReadOnly)
	}
}

// From a time means what the stream took then or later, and everything since, also where
// the connection breaks before anything came.
func TestSubscribeFromTime(t *testing.T) {
	ns := natstest.Start(t)
	proxy := faultproxy.Start(t, ns.Addr())
	w := newWriter(t, Options{URLs: []string{ns.URL}})
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
