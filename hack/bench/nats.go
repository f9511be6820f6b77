package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/harness"
)

// bus is an empty bus for one forwarder.
type bus interface {
	env() []string // variables for the forwarder
	// subscribe reads all events of the live objects until ctx ends.
	subscribe(ctx context.Context, fail context.CancelCauseFunc) (*subscriber, error)
	close() error
}

var _, _ bus = (*natsBus)(nil), (*kafkaTopic)(nil)

// subscriber reads the bus like a user's subscriber.
type subscriber struct {
	sightings
	completed chan time.Time // on NATS, receives the time of the pods' snapshot.completed event
	partition map[object]int // on Kafka, the partition of each object
}

const stream = "KUBERELAY"

// natsBus is a NATS server in a separate process.
type natsBus struct {
	*process
	url, dir string
	conn     *nats.Conn
	js       jetstream.JetStream
}

func (s *stage) startNATS(ctx context.Context) (*natsBus, error) {
	dir, err := os.MkdirTemp(s.dir, "nats-")
	if err != nil {
		return nil, err
	}
	address, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	b := &natsBus{url: "nats://" + address, dir: dir}
	if b.process, err = s.start("nats", nil, s.self, "nats", address, dir); err != nil {
		return nil, err
	}
	err = b.until(ctx, func() (bool, error) {
		var refused error
		b.conn, refused = nats.Connect(b.url)
		return refused == nil, nil
	})
	if err == nil {
		b.js, err = jetstream.New(b.conn)
	}
	return b, err
}

func (b *natsBus) close() error {
	b.conn.Close()
	return errors.Join(b.stop(), os.RemoveAll(b.dir))
}

func (b *natsBus) env() []string { return []string{"KUBERELAY_NATS_URL=" + b.url} }

// podEventsAfter returns the number of pod events in the stream after a position.
func (b *natsBus) podEventsAfter(ctx context.Context, position uint64) (uint64, error) {
	c, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: "kuberelay.bench.core.pods.>", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return 0, err
	}
	return c.CachedInfo().NumPending, nil
}

// probe is the floor of benchmark live. While the forwarder runs, it publishes messages with bare nats.go
// to a subject of the same stream, and measures the time until a subscriber receives each message.
type probe struct {
	mu        sync.Mutex
	latencies []probed
}

type probed struct {
	at time.Time // time of the publish
	ms float64   // milliseconds until the subscriber received the message
}

// between returns the latencies of the messages that were published in a time range, in milliseconds.
func (p *probe) between(from, to time.Time) (l series) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.latencies {
		if m.at.After(from) && m.at.Before(to) {
			l = append(l, m.ms)
		}
	}
	return l
}

// startProbe starts a probe that publishes at the given rate until ctx ends.
func (b *natsBus) startProbe(ctx context.Context, fail context.CancelCauseFunc, perSecond float64) (*probe, error) {
	const subject = "kuberelay.probe.core.probes._.probe"
	p := &probe{}
	consumer, err := b.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		nanoseconds, err := strconv.ParseInt(string(m.Data()), 10, 64)
		if err != nil {
			fail(fmt.Errorf("parse the message of the probe: %w", err))
		}
		at := time.Unix(0, nanoseconds)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.latencies = append(p.latencies, probed{at, float64(time.Since(at).Microseconds()) / 1000})
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, consuming.Stop)
	go func() {
		err := pace(ctx, ctx, perSecond, func(ctx context.Context, _ int) error {
			_, err := b.js.Publish(ctx, subject, strconv.AppendInt(nil, time.Now().UnixNano(), 10))
			return err
		})
		if err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("publish the message of the probe: %w", err))
		}
	}()
	return p, nil
}

func (b *natsBus) subscribe(ctx context.Context, fail context.CancelCauseFunc) (*subscriber, error) {
	s := &subscriber{completed: make(chan time.Time, 1)}
	var consumer jetstream.Consumer
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{"kuberelay.bench.core.*." + liveNamespace + ".>", "kuberelay.bench._control.snapshot.core.pods"}}
	if err := b.until(ctx, func() (found bool, err error) {
		consumer, err = b.js.OrderedConsumer(ctx, stream, config)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil
		} else {
			found = err == nil
		}
		return found, err
	}); err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		at, header, tokens := time.Now(), m.Headers(), strings.Split(m.Subject(), ".")
		if tokens[2] == "_control" {
			if header.Get("ce-type") == "io.kuberelay.snapshot.completed" {
				s.completed <- at
			}
			return
		}
		version, err := strconv.ParseUint(header.Get("ce-resourceversion"), 10, 64)
		if err != nil {
			fail(fmt.Errorf("parse the event on %s: %w", m.Subject(), err))
		}
		s.add(object{tokens[3], header.Get("ce-namespace"), header.Get("ce-name")}, state{version, at})
	})
	if err == nil {
		context.AfterFunc(ctx, consuming.Stop)
	}
	return s, err
}
