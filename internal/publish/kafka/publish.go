package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

var _ publish.Publisher = (*Bus)(nil)

// Publish implements [publish.Publisher]. It blocks while [Options.MaxInFlight] messages await their
// acknowledgement, but only until ctx ends. While the bus is not ready, Publish fails at once. It also fails
// at once if the partition of the message has stalled, or has used up its share of the in-flight limit. So a
// slow partition does not delay the others.
//
// A consistency point goes to every partition of its topic. See publishPoint.
func (b *Bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	if m.IsResolved() {
		b.publishPoint(m, done)
		return
	}
	started := time.Now()
	record, err := b.encode(m)
	if err != nil {
		b.reject(m, done, err)
		return
	}
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		b.reject(m, done, publish.Failure(publish.ResultCancelled, ctx.Err()))
		return
	case <-b.ctx.Done():
		b.reject(m, done, errClosed)
		return
	}
	b.metrics.InFlight.Inc()
	b.flights.pending.Begin()
	b.start(&flight{m: m, record: record, id: index.Of(record.Key), done: done, started: started, deadline: time.Now().Add(b.opts.AckTimeout)})
}

// start passes a message to its sender, or completes the message without sending it.
func (b *Bus) start(f *flight) {
	s, err := b.current()
	if err != nil {
		b.finish(f, 0, publish.NotSent(publish.Failure(publish.ResultNotReady, err)))
		return
	}
	f.s, f.t = s, s.openTopic(b.topics.Template.Of(f.m.Key))
	if f.t == nil {
		b.finish(f, 0, publish.NotSent(errOpening))
		return
	}
	f.sender = f.t.senders[binding.Partition(f.record.Key, f.t.spread)]
	size := max(1, len(f.record.Value))
	if !f.sender.Admit(size, s.share(), time.Now()) {
		b.finish(f, 0, publish.NotSent(errPartitionBusy))
		return
	}
	f.size = size
	switch {
	case f.m.Marker:
		if !s.index.BeginMarker(f.id) {
			b.finish(f, 0, publish.NotSent(errBusy))
			return
		}
		// An earlier attempt might have been acknowledged since the caller looked for the marker.
		if last := s.marker(string(f.record.Key)); last.ID == f.m.ID {
			s.index.End(f.id, 0)
			b.finishAs(publish.ResultAlreadyStored, f, last.Position(), nil)
			return
		}
	default:
		last, busy, ok := s.index.Begin(f.id, f.m.Expected)
		if busy {
			b.finish(f, 0, publish.NotSent(errBusy))
			return
		}
		if !ok {
			go b.resolve(f, last) // Close waits for its completion
			return
		}
	}
	f.item = &sender.Item{Record: f.record, Done: func(offset int64, err error) { b.answered(f, offset, err) }}
	if b.opts.Tombstones && f.m.Acked.Deleted {
		f.item.Tombstone = binding.Tombstone(f.m)
	}
	b.flights.add(f)
	f.sender.Add(f.item)
}

// answered completes a message after the final response of the brokers, or at the end of the session.
// The message might already have failed with a timeout.
func (b *Bus) answered(f *flight, offset int64, err error) {
	if err != nil {
		f.s.index.End(f.id, 0)
		err := failureOf(err)
		if errors.Is(err, publish.ErrTooLarge) {
			go b.finish(f, 0, err) // not here, because done may publish a smaller form, and block until this sender frees its share
			return
		}
		b.finish(f, 0, err)
		return
	}
	failpoint.Hit("before-record")
	at := publish.PositionOf(f.sender.Partition, offset)
	e := record.EntryOf(f.m.Acked, f.t.name, f.sender.Partition, offset)
	e.Time = f.item.Record.Timestamp.Unix()
	if f.m.Marker {
		e.Type, e.ID, e.NoValue = event.Type(f.m.Attribute("type")), f.m.ID, true
		if f.m.IsClaim() {
			e.Claim = string(f.m.Data)
		}
		f.s.setMarker(string(f.record.Key), e)
	}
	f.s.recorder.Put(f.record.Key, e)
	f.t.newest[f.sender.Partition].Store(offset)
	if f.m.Marker {
		f.s.index.End(f.id, 0) // the index holds objects only
	} else {
		f.s.index.End(f.id, at)
	}
	b.finish(f, at, nil)
}

// resolve completes a message whose expected position is not that of the object's last event. The
// last event can be an earlier attempt to publish the message.
func (b *Bus) resolve(f *flight, last uint64) {
	conflict := &publish.ConflictError{Key: f.m.Key}
	if last == 0 {
		b.finish(f, 0, conflict)
		return
	}
	ctx, cancel := context.WithDeadline(b.ctx, f.deadline)
	defer cancel()
	r, found, err := b.stored.ReadStored(ctx, f.t.name, publish.Partition(last), publish.Offset(last))
	switch {
	case err != nil:
		if errors.Is(err, broker.ErrPastEnd) { // the next session determines whether the event is lost
			f.s.end(err)
		}
		b.finish(f, 0, publish.NotSent(fmt.Errorf("read the stored event: %w", err)))
		return
	case !found || string(r.Key) != string(f.record.Key):
		e, err := b.stored.RemovedAt(ctx, f.t.name, string(f.record.Key), last)
		switch {
		case err != nil:
			b.finish(f, 0, publish.NotSent(err))
			return
		case e == entry{}: // the topic lost the event
			f.s.index.Lost(f.id, last)
		default:
			conflict.Bus = e.Acked()
		}
		b.finish(f, 0, conflict)
		return
	}
	stored, err := binding.Decode(r.Headers, r.Value)
	if err != nil {
		conflict.Bus.Position = last // the record is not a Kuberelay event
		b.finish(f, 0, conflict)
		return
	}
	if publish.IsSame(f.m, stored) {
		b.finishAs(publish.ResultAlreadyStored, f, last, nil)
		return
	}
	if e, ok := b.stored.EntryOf(r, f.t.name, publish.Partition(last)); ok {
		conflict.Bus = e.Acked()
		f.s.recordAgain(f.record.Key, e)
	}
	conflict.Bus.Position = last
	b.finish(f, 0, conflict)
}

// reject completes a message that was never in flight.
func (b *Bus) reject(m *event.Message, done func(uint64, error), err error) {
	b.metrics.Count(publish.ResultOf(err))
	done(0, fmt.Errorf("publish %s: %w", m.ID, publish.NotSent(err)))
}

func (b *Bus) finish(f *flight, position uint64, err error) {
	b.finishAs(publish.ResultOf(err), f, position, err)
}

// finishAs calls the completion of a message, unless the completion was already called.
func (b *Bus) finishAs(as publish.Result, f *flight, position uint64, err error) {
	if f.finished.Swap(true) {
		return
	}
	b.flights.remove(f)
	if f.size > 0 {
		f.sender.Release(f.size)
	}
	b.metrics.Count(as)
	b.metrics.InFlight.Dec()
	<-b.slots
	defer b.flights.pending.End()
	if err == nil {
		b.metrics.AckSeconds.Observe(time.Since(f.started).Seconds())
	}
	if err != nil {
		err = fmt.Errorf("publish %s: %w", f.m.ID, err)
	}
	f.done(position, err)
}

// encode returns the record of an event or a marker in an event topic. The sender sets its
// timestamp. encode rejects a key that readers would reject. See [event.MaxText].
func (b *Bus) encode(m *event.Message) (r recordbatch.Record, err error) {
	if m.Marker {
		r, err = binding.EncodeControl(m)
	} else {
		r, err = binding.Encode(m, b.opts.ContentMode == Structured)
	}
	if err == nil && len(r.Key) > event.MaxText {
		err = fmt.Errorf("%w: the partition key has %d bytes, and the limit is %d", publish.ErrTooLarge, len(r.Key), event.MaxText)
	}
	return r, err
}
