package publishtest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Subscribable is a bus that supports subscriptions.
type Subscribable interface {
	Subscribe(ctx context.Context, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error
}

// Got is one delivery of a subscription: an event, a foreign message, or a Kafka tombstone.
type Got struct {
	Message *event.Message // nil for a foreign message; only the key for a tombstone
	publish.Delivery
	Err       error // why the message is foreign
	Tombstone bool
}

// String returns the event's id, or a description of a foreign message or a tombstone.
func (g Got) String() string {
	switch {
	case g.Message == nil:
		return "foreign " + g.Subject
	case g.Tombstone:
		return "tombstone " + g.Message.Key.Name
	}
	return g.Message.ID
}

// Subscriber runs a subscription until its test ends.
type Subscriber struct {
	Cancel func() // ends the subscription's context

	t       testing.TB
	all     chan Got // unbuffered, so the subscription blocks until the test reads
	notices chan error
	result  chan error
}

// Subscribe starts a subscription. It replaces the callbacks in the options.
func Subscribe(t testing.TB, bus Subscribable, o publish.SubscribeOptions) *Subscriber {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Subscriber{Cancel: cancel, t: t, all: make(chan Got), notices: make(chan error, 10_000), result: make(chan error, 1)}
	give := func(g Got) error {
		select {
		case s.all <- g:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.Notify = func(err error) { s.notices <- err }
	o.Foreign = func(d publish.Delivery, err error) {
		if err == nil {
			t.Error("a foreign message was delivered without an error")
		}
		_ = give(Got{Delivery: d, Err: err})
	}
	o.Tombstone = func(k event.Key, d publish.Delivery) {
		_ = give(Got{Message: &event.Message{Key: k}, Delivery: d, Tombstone: true})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.result <- bus.Subscribe(ctx, o, func(m *event.Message, d publish.Delivery) error {
			copied := *m
			copied.Data = bytes.Clone(m.Data) // the subscription reuses the memory
			return give(Got{Message: &copied, Delivery: d})
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// Next waits for the next delivery.
func (s *Subscriber) Next() Got {
	s.t.Helper()
	select {
	case g := <-s.all:
		return g
	case err := <-s.result:
		s.t.Fatalf("the subscription ended: %v", err)
	case <-time.After(limit):
		s.t.Fatalf("no delivery within %s", limit)
	}
	return Got{}
}

// Notice waits for a notice for which the function is returns true.
func (s *Subscriber) Notice(what string, is func(error) bool) {
	s.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case err := <-s.notices:
			if is(err) {
				return
			}
		case <-timeout:
			s.t.Fatalf("no notice within %s: %s", limit, what)
		}
	}
}

// Reading waits for one more notice that the subscription is reading.
func (s *Subscriber) Reading() {
	s.t.Helper()
	s.Notice("reading", func(err error) bool { return err == nil })
}

// Ended waits for the end of the subscription and returns its result.
func (s *Subscriber) Ended() error {
	s.t.Helper()
	select {
	case err := <-s.result:
		return err
	case <-time.After(limit):
		s.t.Fatalf("not ended within %s", limit)
		return nil
	}
}
