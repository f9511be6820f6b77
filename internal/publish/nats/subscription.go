package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// subscription is one run of Subscribe. It is what JetStream's client calls an
// ordered consumer: one for the server to forget, and a new one after the last
// position seen whenever anything goes wrong. The client's own would miss what is
// written while it is away and has not seen a message yet, would give more than
// last messages after a break among these, and says nothing while it waits.
type subscription struct {
	b     *Bus
	opts  publish.SubscribeOptions
	yield func(*event.Message, publish.Delivery) error

	reading bool      // there has been a consumer
	begun   bool      // the stream was found; from then on what follows is valid
	created time.Time // identifies the stream
	seen    uint64    // everything up to this position is done with
	until   uint64    // up to this position only the last of each subject is wanted

	missing bool  // the stream did not exist when it was first looked for
	failure error // of yield
}

const (
	subscribeBatch  = 200             // messages asked for at a time
	heartbeatEvery  = 2 * time.Second // two missed: the server has forgotten the consumer
	forgetAfter     = time.Minute     // without a request, the server forgets a consumer
	forgetTimeout   = time.Second
	minResubscribe  = 100 * time.Millisecond
	maxResubscribe  = 5 * time.Second
	resubscribeStep = 2
)

func (s *subscription) run(ctx context.Context) error {
	delay := minResubscribe
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
		case errors.Is(err, ErrMisconfigured) && !s.reading:
			return err
		case err == nil:
			continue
		case ok:
			delay = minResubscribe
		}
		s.notify(err)
		if err := sleep(ctx, delay); err != nil {
			return err
		}
		delay = min(delay*resubscribeStep, maxResubscribe)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *subscription) notify(err error) {
	if s.opts.Notify != nil {
		s.opts.Notify(err)
	}
}

// await waits until the bus is ready and gives the number of its connection.
func (s *subscription) await(ctx context.Context) (connection int, err error) {
	for {
		connection, changed, err := s.b.state.get()
		if s.b.isClosing() {
			return 0, errClosed
		}
		if err == nil {
			return connection, nil
		}
		if !s.b.nc.IsConnected() {
			err = s.b.whyNotConnected()
		}
		switch {
		case errors.Is(err, ErrMisconfigured) && !s.reading:
			return 0, err
		case errors.Is(err, ErrStreamMissing) && !s.begun:
			s.missing = true
		}
		s.notify(err)
		select {
		case <-changed:
		case <-s.b.closing:
			return 0, errClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// session reads with one consumer, over one connection. It returns no error where
// to go on at once is right; ok tells whether it got as far as having a consumer.
func (s *subscription) session(ctx context.Context, connection int) (ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { s.b.untilLost(ctx, connection); cancel() })
	ok, err = s.consume(ctx)
	if ctx.Err() != nil { // of the connection, if not of the caller: await says so
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
		if denied := s.b.permissionError(); denied != nil {
			err = misconfigured("our NATS user lacks a permission: %w", denied)
		}
		return false, fmt.Errorf("subscribe: %w", err)
	}
	s.reading = true
	defer s.forget(ctx, consumer)
	s.notify(nil)
	return true, s.read(ctx, consumer, last)
}

// untilLost blocks until the connection with that number is lost, or ctx ends.
func (b *Bus) untilLost(ctx context.Context, connection int) {
	for {
		now, changed, _ := b.state.get()
		if now != connection {
			return
		}
		select {
		case <-changed:
		case <-b.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// locate looks at the stream and decides where to go on.
func (s *subscription) locate(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.b.opts.AckTimeout)
	defer cancel()
	info, err := s.b.findStream(timed)
	if err != nil {
		if errors.Is(err, ErrStreamMissing) {
			_ = s.b.look(timed) // so that the supervisor looks out for it
		}
		return err
	}
	end := info.State.LastSeq
	switch {
	case !s.begun:
		s.begun = true
		switch {
		case s.opts.From == publish.FromLast:
			s.until = end
		case s.opts.From == publish.FromNow && !s.missing:
			s.seen = end
		}
	case !info.Created.Equal(s.created): // removed and made anew
		s.seen, s.until = 0, 0
	case end < s.seen: // the server lost what it had acknowledged
		s.seen = end
		s.until = min(s.until, end)
	}
	s.created = info.Created
	return nil
}

func (s *subscription) create(ctx context.Context, last bool) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.opts.AckTimeout)
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
	if len(s.opts.Filters) == 1 { // servers before 2.10 take no other
		config.FilterSubject = s.opts.Filters[0]
	} else {
		config.FilterSubjects = s.opts.Filters
	}
	return s.b.js.CreateConsumer(ctx, s.b.opts.Stream, config)
}

// forget removes the consumer if that is quickly done; in time the server does it
// by itself.
func (s *subscription) forget(ctx context.Context, consumer jetstream.Consumer) {
	if !s.b.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	_ = s.b.js.DeleteConsumer(ctx, s.b.opts.Stream, consumer.CachedInfo().Name)
}

// read yields what the consumer brings. It returns nil when the consumer has
// brought the last of each subject; otherwise only an error ends it.
func (s *subscription) read(ctx context.Context, consumer jetstream.Consumer, last bool) error {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(subscribeBatch), jetstream.PullHeartbeat(heartbeatEvery))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for received := uint64(1); ; received++ {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != received {
			return fmt.Errorf("got message %d where %d was due", meta.Sequence.Consumer, received)
		}
		position := meta.Sequence.Stream
		switch {
		case last && position > s.until: // what follows the snapshot is wanted without gaps
			s.seen = s.until
			return nil
		case position > s.seen: // a snapshot that was begun again repeats
			s.seen = position
			if s.failure = s.take(msg, meta); s.failure != nil {
				return s.failure
			}
		}
		if last && meta.NumPending == 0 { // so that it need not be read again after a break
			s.seen = s.until
		}
		if last && s.seen >= s.until {
			return nil
		}
	}
}

// take yields one message.
func (s *subscription) take(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	d := publish.Delivery{Subject: msg.Subject(), Position: meta.Sequence.Stream, Stored: meta.Timestamp}
	_, cluster, key, marker, err := event.ParseSubject(msg.Subject())
	if err == nil {
		d.Cluster = cluster
		var m *event.Message
		if m, err = Decode(msg.Headers(), msg.Data()); err == nil {
			m.Key, m.Marker = key, marker
			return s.yield(m, d)
		}
	}
	if s.opts.Foreign != nil {
		s.opts.Foreign(d, err)
	}
	return nil
}
