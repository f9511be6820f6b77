package nats

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish/publishtest"
)

// TestReadMissing: what the consumer did not bring is found and read, and what is
// purged in the meantime is left out.
func TestReadMissing(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
	want := fill(t, bus, 10, 2)
	got := map[event.Key]event.Acked{}
	l := loading{b: bus, seen: map[string]struct{}{}, yield: func(k event.Key, a event.Acked) error { got[k] = a; return nil }}
	for k := range want {
		if k.Name != "web-3" && k.Name != "web-7" {
			l.seen[subjectOf(k)] = struct{}{}
		}
	}
	if err := l.readMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	for k, a := range want {
		missing := k.Name == "web-3" || k.Name == "web-7"
		if _, ok := got[k]; ok != missing || missing && got[k].Position != a.Position {
			t.Errorf("%s: got %+v", k, got[k])
		}
	}

	l.seen = map[string]struct{}{}
	n := 0
	l.yield = func(event.Key, event.Acked) error {
		n++
		stream, err := bus.js.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			return err
		}
		return stream.Purge(t.Context())
	}
	if err := l.readMissing(t.Context()); err != nil || n != 1 {
		t.Errorf("purged after the first: %d read, error %v", n, err)
	}
}

// TestLoadGap: a message that got lost on its way is noticed, by the next one or,
// where there is none, by asking.
func TestLoadGap(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster})
	fill(t, bus, 3, 1)
	consumer, err := bus.js.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", AckPolicy: jetstream.AckNonePolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := loading{b: bus, consumer: consumer, seen: map[string]struct{}{}, yield: func(event.Key, event.Acked) error { return nil }}
	next := func() jetstream.Msg {
		msg, err := consumer.Next()
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	if pending, err := l.take(next()); pending != 2 || err != nil {
		t.Errorf("the first message: %d pending, %v", pending, err)
	}
	if pending, err := l.left(t.Context()); pending != 2 || err != nil {
		t.Errorf("asked in between: %d pending, %v", pending, err)
	}
	next() // lost
	if pending, err := l.left(t.Context()); err == nil {
		t.Errorf("a message is lost, and %d are pending", pending)
	}
	if _, err := l.take(next()); err == nil {
		t.Error("a message is lost, and the next was taken")
	}
}

// TestLoadHeadersOnly: the objects themselves do not travel.
func TestLoadHeadersOnly(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		s := natstest.Start(t)
		bus := connect(t, Options{URLs: []string{s.URL}, Cluster: publishtest.Cluster, ContentMode: mode})
		publishOK(t, bus, publishtest.Object{Name: "web", Version: 1, Data: strings.Repeat("x", 500_000)}.Message(t, 0))
		before := bus.nc.Stats().InBytes
		if loaded := load(t, bus); len(loaded) != 1 {
			t.Errorf("loaded %v", loaded)
		}
		if got := bus.nc.Stats().InBytes - before; got > 50_000 {
			t.Errorf("%s: %d bytes were read", mode, got)
		}
	}
}

// TestLateLook: what a look at the stream brought over a connection that is lost by
// now says nothing about the next one.
func TestLateLook(t *testing.T) {
	var s state
	s.set(0, nil)
	s.disconnected(errors.New("broken"))
	s.set(0, nil)
	if _, _, err := s.get(); err == nil {
		t.Error("ready, by a look at the connection before")
	}
	s.set(1, nil)
	if _, _, err := s.get(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}
