package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// kept is an event as the bus has it.
type kept struct {
	message  *nats.Msg
	version  uint64
	position uint64
}

func keep(m jetstream.Msg, version uint64) (kept, error) {
	meta, err := m.Metadata()
	if err != nil {
		return kept{}, err
	}
	return kept{&nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}, version, meta.Sequence.Stream}, nil
}

// next is the same event of the version after it.
func (k kept) next() (*nats.Msg, uint64) {
	m := &nats.Msg{Subject: k.message.Subject, Header: nats.Header{}, Data: k.message.Data}
	for name, values := range k.message.Header {
		m.Header[name] = values
	}
	m.Header.Set("ce-resourceversion", strconv.FormatUint(k.version+1, 10))
	m.Header.Del(jetstream.ExpectedLastSubjSeqHeader) // it is told anew
	return m, k.version + 1
}

// publishBeside publishes events of some pods, one after the other, as a bare client with the
// forwarder's compare-and-set: what the bus itself takes from a publish to the subscriber, at
// the same time and in the same state as for the forwarder. Nothing else changes these pods.
func (sc *scene) publishBeside(ctx context.Context, pods []object, perSecond float64, length time.Duration) (took series, err error) {
	var mu sync.Mutex
	var published []change
	if _, err := pace(ctx, perSecond, length, func(i int) error {
		o := pods[i%len(pods)]
		last := sc.subscriber.last(o)
		if last.message == nil {
			return fmt.Errorf("no event of %s/%s has come", o.namespace, o.name)
		}
		m, version := last.next()
		c := change{object: o, state: state{version, time.Now()}}
		if _, err := sc.bus.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last.position)); err != nil {
			return fmt.Errorf("publish %s: %w", m.Subject, err)
		}
		mu.Lock()
		defer mu.Unlock()
		published = append(published, c)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := awaitAll(ctx, published, sc.subscriber); err != nil {
		return nil, err
	}
	for _, c := range published {
		at, _ := sc.subscriber.seen(c)
		took = append(took, milliseconds(at.Sub(c.at)))
	}
	return took, nil
}

// both does two things at once.
func both(one, other func() error) error {
	done := make(chan error)
	go func() { done <- other() }()
	err := one()
	return errors.Join(err, <-done)
}
