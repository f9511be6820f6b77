package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

var _ publish.Publisher = (*Bus)(nil)

// flight is a message whose completion has not been called.
type flight struct {
	m        *event.Message
	record   recordbatch.Record
	id       identity
	done     func(uint64, error)
	begun    time.Time
	deadline time.Time

	s    *session
	t    *topic
	lane *lane
	item *item

	finished atomic.Bool
}

// flights are the messages in flight.
type flights struct {
	pending outcome.Pending // begun, and their completion has not returned

	mu  sync.Mutex
	all map[*flight]struct{} // those that a lane has
}

func (s *flights) add(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*flight]struct{}{}
	}
	s.all[f] = struct{}{}
}

func (s *flights) remove(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, f)
}

// late gives those whose deadline has passed.
func (s *flights) late(now time.Time) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []*flight
	for f := range s.all {
		if now.After(f.deadline) {
			late = append(late, f)
		}
	}
	return late
}

// Publish is [publish.Publisher]'s. It blocks while [Options.MaxInFlight] messages
// await their acknowledgement, until ctx ends. While the bus is not ready it fails at
// once.
func (b *Bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	f := &flight{m: m, done: done, begun: time.Now()}
	record, err := b.encode(m)
	if err != nil {
		b.refuse(f, err)
		return
	}
	f.record, f.id = record, identify(record.Key)
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		b.refuse(f, outcome.Failure(outcome.Cancelled, ctx.Err()))
		return
	case <-b.ctx.Done():
		b.refuse(f, errClosed)
		return
	}
	b.metrics.InFlight.Inc()
	b.flights.pending.Begin()
	f.deadline = time.Now().Add(b.opts.AckTimeout)
	b.start(f)
}

// start sends a message, or finds out why it may not be sent.
func (b *Bus) start(f *flight) {
	s, err := b.current()
	if err != nil {
		b.finish(f, 0, notSent(outcome.Failure(outcome.NotReady, err)))
		return
	}
	f.s, f.t = s, s.openTopic(b.topicOf(f.m.Key))
	if f.t == nil {
		b.finish(f, 0, notSent(errOpening))
		return
	}
	f.lane = f.t.lanes[binding.Partition(f.record.Key, f.t.spread)]
	if f.m.Marker {
		if !s.index.beginMarker(f.id) {
			b.finish(f, 0, notSent(errBusy)) // so that it is looked for before it is sent again
			return
		}
	} else {
		last, busy, ok := s.index.begin(f.id, f.m.Expected)
		if busy {
			b.finish(f, 0, notSent(errBusy))
			return
		}
		if !ok {
			go b.resolve(f, last) // Close waits for its completion
			return
		}
	}
	f.item = &item{f.record, func(offset int64, err error) { b.answered(f, offset, err) }}
	b.flights.add(f)
	f.lane.add(f.item)
}

// answered is called when the brokers have answered, or when it is certain that they
// will not be asked again. Nobody may be waiting for it any more.
func (b *Bus) answered(f *flight, offset int64, err error) {
	if err != nil {
		f.s.index.end(f.id, 0)
		err := failureOf(err)
		if errors.Is(err, publish.ErrTooLarge) {
			go b.finish(f, 0, err) // done may publish what is left of it, and wait for room that this lane is to make
			return
		}
		b.finish(f, 0, err)
		return
	}
	failpoint.Hit("before-record")
	at := publish.PositionOf(f.lane.partition, offset)
	acked := f.m.Acked
	acked.Stored = uint32(f.record.Timestamp.Unix())
	e := entryOf(acked, f.t.name, f.lane.partition, offset)
	if f.m.Marker {
		e.Type, e.ID = event.Type(f.m.Attribute("type")), f.m.ID
		f.s.setMarker(string(f.record.Key), e)
	}
	f.s.recorder.put(f.record.Key, e)
	if f.m.Marker {
		f.s.index.end(f.id, 0) // the index is of objects
	} else {
		f.s.index.end(f.id, at)
	}
	b.finish(f, at, nil)
}

// resolve completes a message whose object has another last event than expected: an
// earlier attempt at it, or something else.
func (b *Bus) resolve(f *flight, last uint64) {
	conflict := &publish.ConflictError{Key: f.m.Key}
	if last == 0 {
		b.finish(f, 0, conflict)
		return
	}
	ctx, cancel := context.WithDeadline(b.ctx, f.deadline)
	defer cancel()
	r, found, err := b.client.ReadOne(ctx, f.t.name, publish.Partition(last), publish.Offset(last))
	switch {
	case err != nil:
		b.finish(f, 0, notSent(fmt.Errorf("read what the bus holds: %w", err)))
		return
	case !found || string(r.Key) != string(f.record.Key):
		// The topic has lost it.
		f.s.index.lost(f.id, last)
		b.finish(f, 0, conflict)
		return
	}
	attribute, err := attributesOf(r)
	if err != nil {
		conflict.Bus.Position = last // what is there is no event of ours
		b.finish(f, 0, conflict)
		return
	}
	if outcome.IsSame(f.m, attribute) {
		b.finishAs(outcome.AlreadyStored, f, last, nil)
		return
	}
	if e, ok := b.entryOf(r, f.t.name, publish.Partition(last)); ok {
		conflict.Bus = e.acked()
	}
	conflict.Bus.Position = last
	b.finish(f, 0, conflict)
}

// sweepOften completes what has been in flight for too long. It runs until Close.
func (b *Bus) sweepOften() {
	ticker := time.NewTicker(max(b.opts.AckTimeout/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case now := <-ticker.C:
			b.sweep(now)
		}
	}
}

// sweep completes the messages whose time is up. One that is in a batch may be stored
// yet: the lane goes on with it, and until it has its answer no other event of the
// object is sent.
func (b *Bus) sweep(now time.Time) {
	for _, f := range b.flights.late(now) {
		if !f.lane.withdraw(f.item) {
			b.finish(f, 0, errTimeout)
			continue
		}
		f.s.index.end(f.id, 0)
		b.finish(f, 0, notSent(errWaited))
	}
}

// refuse completes a message that never took a place.
func (b *Bus) refuse(f *flight, err error) {
	b.metrics.Count(outcome.Of(err))
	f.done(0, fmt.Errorf("publish %s: %w", f.m.ID, notSent(err)))
}

func (b *Bus) finish(f *flight, position uint64, err error) {
	b.finishAs(outcome.Of(err), f, position, err)
}

// finishAs calls a message's completion, unless that was done before.
func (b *Bus) finishAs(as outcome.Result, f *flight, position uint64, err error) {
	if f.finished.Swap(true) {
		return
	}
	b.flights.remove(f)
	b.metrics.Count(as)
	b.metrics.InFlight.Dec()
	<-b.slots
	defer b.flights.pending.End()
	if err == nil {
		b.metrics.AckSeconds.Observe(time.Since(f.begun).Seconds())
	}
	var conflict *publish.ConflictError
	if err != nil && !errors.As(err, &conflict) {
		err = fmt.Errorf("publish %s: %w", f.m.ID, err)
	}
	f.done(position, err)
}
