package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// subscription is the state of one call of Subscribe. Like an ordered consumer of the JetStream
// client, it uses ephemeral consumers, and creates a new one after the last position when a consumer
// fails. The client's ordered consumer is not sufficient. It misses messages that are written during
// a disconnect before its first message. If the connection breaks while it reads the last message of
// each subject, it continues with every message instead. It also reports nothing while it waits.
type subscription struct {
	b     *Bus
	opts  publish.SubscribeOptions
	yield func(*event.Message, publish.Delivery) error
	raw   func(*Raw) error // replaces yield for undecoded messages

	reading  bool      // a consumer was created
	started  bool      // the stream was found; the fields below are valid
	created  time.Time // identifies the stream
	seen     uint64    // every message up to this position was processed
	until    uint64    // up to this position, only the last message of each subject is yielded
	end      uint64    // the end of the stream when it was found; no matching message is between until and end
	reached  uint64    // highest position received
	received int64     // number of messages received from consumers
	counter  *longwork.Counter
	caught   bool // CaughtUp was called

	losses uint64 // the bus's count of losses when the stream was found
	loss   <-chan struct{}

	missing bool  // the stream did not exist at the first lookup
	failure error // error of yield
}

const (
	subscribeBatch  = 200             // messages per request
	heartbeatEvery  = 2 * time.Second // after two missed heartbeats, the consumer counts as lost
	forgetAfter     = time.Minute     // the server deletes a consumer after this time without a request
	forgetTimeout   = time.Second
	minResubscribe  = 100 * time.Millisecond
	maxResubscribe  = 5 * time.Second
	resubscribeStep = 2
)

func (s *subscription) run(ctx context.Context) error {
	delay := minResubscribe
	s.counter = s.b.conn.Opts.Reading
	for {
		connection, err := s.await(ctx)
		if err != nil {
			return err
		}
		ok, err := s.session(ctx, connection)
		switch {
		case s.failure != nil:
			return s.failure
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrMisconfigured) && !s.reading, errors.Is(err, publish.ErrLost):
			return err
		case err == nil:
			continue
		case ok:
			delay = minResubscribe
		}
		s.notify(err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
		delay = min(delay*resubscribeStep, maxResubscribe)
	}
}

func (s *subscription) notify(err error) {
	if s.opts.Notify != nil {
		s.opts.Notify(err)
	}
}

// await waits until the bus is ready. It then returns the number of the bus's connection.
func (s *subscription) await(ctx context.Context) (connection int, err error) {
	for {
		connection, changed, err := s.b.conn.State()
		if s.b.conn.IsClosing() {
			return 0, stream.ErrClosed
		}
		if err == nil {
			return connection, nil
		}
		if !s.b.conn.NC.IsConnected() {
			err = s.b.conn.WhyNotConnected()
		}
		switch {
		case errors.Is(err, ErrMisconfigured) && !s.reading:
			return 0, err
		case errors.Is(err, ErrStreamMissing) && !s.started:
			s.missing = true
		}
		s.notify(err)
		select {
		case <-changed:
		case <-s.b.conn.Closing():
			return 0, stream.ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// session reads with one consumer over one connection. It returns nil if run should continue without
// a delay. ok reports whether a consumer was created.
func (s *subscription) session(ctx context.Context, connection int) (ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { s.b.conn.UntilLost(ctx, connection); cancel() })
	ok, err = s.consume(ctx)
	if ctx.Err() != nil { // the caller's ctx ended, or the connection was lost, which await reports
		err = nil
	}
	return ok, err
}

func (s *subscription) consume(ctx context.Context) (ok bool, err error) {
	if err := s.locate(ctx); err != nil {
		return false, err
	}
	last := s.seen < s.until
	consumer, err := s.create(ctx, last)
	if err != nil {
		if denied := s.b.conn.PermissionError(); denied != nil {
			err = stream.Misconfigured("the NATS user lacks a permission: %w", denied)
		}
		return false, fmt.Errorf("subscribe: %w", err)
	}
	s.reading = true
	defer s.forget(ctx, consumer)
	s.notify(nil)
	if !last {
		if s.failure = s.caughtUp(consumer.CachedInfo().NumPending); s.failure != nil {
			return true, s.failure
		}
	}
	return true, s.read(ctx, consumer, last)
}

func (s *subscription) create(ctx context.Context, last bool) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.conn.Opts.AckTimeout)
	defer cancel()
	config := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       s.seen + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: forgetAfter,
	}
	switch {
	case last:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
	case s.opts.From == publish.FromTime && s.seen == 0:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartTimePolicy, 0
		config.OptStartTime = &s.opts.Since
	}
	if len(s.opts.Filters) == 1 { // servers before 2.10 support only a single filter
		config.FilterSubject = s.opts.Filters[0]
	} else {
		config.FilterSubjects = s.opts.Filters
	}
	return s.b.conn.JS.CreateConsumer(ctx, s.b.conn.Opts.Stream, config)
}

// forget deletes the consumer if the server responds quickly. Otherwise, the server deletes the
// consumer later.
func (s *subscription) forget(ctx context.Context, consumer jetstream.Consumer) {
	if !s.b.conn.NC.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	_ = s.b.conn.JS.DeleteConsumer(ctx, s.b.conn.Opts.Stream, consumer.CachedInfo().Name)
}

// read yields the messages of the consumer. If last is set, it returns nil after the last message
// of each subject. Otherwise, only an error ends it.
func (s *subscription) read(ctx context.Context, consumer jetstream.Consumer, last bool) error {
	messages, err := s.b.conn.Pull(consumer, subscribeBatch, heartbeatEvery)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	if s.opts.UntilLost {
		defer s.onLoss(messages.Stop)()
	}
	return s.takeAll(ctx, messages, last)
}

// messages is the part of [stream.Puller] that takeAll uses.
type messages interface {
	Next(within time.Duration) (*stream.Message, *natsgo.MsgMetadata, error)
}

func (s *subscription) takeAll(ctx context.Context, messages messages, last bool) error {
	for received := uint64(1); ; received++ {
		msg, meta, err := messages.Next(2 * heartbeatEvery)
		for ; errors.Is(err, stream.ErrIdle); msg, meta, err = messages.Next(2 * heartbeatEvery) {
			if done, err := s.idle(ctx, last); done || err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != received {
			return fmt.Errorf("got message %d, want %d", meta.Sequence.Consumer, received)
		}
		position := msg.Sequence
		s.reached = max(s.reached, position)
		s.received++
		s.counter.Left(s.received, int64(meta.NumPending))
		switch {
		case last && position > s.until: // after the snapshot, the subscription needs every message
			s.seen = s.until
			return nil
		case position > s.seen: // a restarted snapshot repeats messages
			s.seen = position
			if s.failure = s.take(msg); s.failure != nil {
				return s.failure
			}
		}
		switch {
		case last && s.seen >= s.until:
			return nil
		case !last:
			if s.failure = s.caughtUp(meta.NumPending); s.failure != nil {
				return s.failure
			}
		}
	}
}

// take yields one message, or reports that it is not an event.
func (s *subscription) take(msg *stream.Message) error {
	if s.raw != nil {
		return s.raw(msg)
	}
	d := publish.Delivery{Subject: msg.Subject, Position: msg.Sequence, Stored: msg.Time}
	_, cluster, key, marker, err := subject.Parse(msg.Subject)
	if err == nil {
		d.Cluster = cluster
		var m *event.Message
		if m, err = binding.Decode(msg.Headers, msg.Data); err == nil {
			m.Key, m.Marker = key, marker
			return s.yield(m, d)
		}
	}
	if s.opts.Foreign != nil {
		s.opts.Foreign(d, err)
	}
	return nil
}
