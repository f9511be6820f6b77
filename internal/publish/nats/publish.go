package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

var _ publish.Publisher = (*Bus)(nil)

// Publish is [publish.Publisher]'s. It blocks while [Options.MaxInFlight]
// messages await their acknowledgement, until ctx ends; once the message is on its
// way ctx no longer matters. While the bus is not ready it fails at once.
//
// The JetStream client's own asynchronous publishing is not used: it holds its lock
// while it reports a timeout, allocates a timer for each message, and publishes
// again by itself where no stream answered, which could reorder.
func (b *Bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	f := &flight{m: m, done: done, sent: time.Now()}
	h := headers.Get().(*header)
	defer h.free()
	msg, err := b.prepare(m, h)
	if err != nil {
		b.refuse(f, err)
		return
	}
	f.subject = msg.Subject
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		b.refuse(f, outcome.Failure(outcome.Cancelled, ctx.Err()))
		return
	case <-b.closing:
		b.refuse(f, errClosed)
		return
	}
	b.metrics.InFlight.Inc()
	if err := b.opts.permitted(); err != nil { // not before: it may have waited for room
		b.release()
		b.refuse(f, outcome.Failure(outcome.NotReady, err))
		return
	}
	f.deadline = time.Now().Add(b.opts.AckTimeout)
	token, ok := b.flights.add(f)
	if !ok {
		b.release()
		b.refuse(f, errClosed)
		return
	}
	msg.Reply = b.reply(token)
	if err := b.nc.PublishMsg(msg); err != nil && b.flights.take(token) != nil {
		b.finish(f, 0, b.sendFailure(err, msg))
	}
}

// prepare makes the bus's message of m, or says why there is no use in it.
func (b *Bus) prepare(m *event.Message, h *header) (*natsgo.Msg, error) {
	if b.opts.ReadOnly {
		return nil, errReadOnly
	}
	if err := b.Ready(); err != nil {
		return nil, outcome.Failure(outcome.NotReady, err)
	}
	msg, err := encode(b.opts.ContentMode, m, h)
	if err != nil {
		return nil, err
	}
	msg.Subject = m.Subject(b.opts.SubjectPrefix, b.opts.Cluster)
	if len(msg.Subject) > maxSubject {
		return nil, fmt.Errorf("%w: its subject has %d bytes, and the server ends the connection at a line of %d", publish.ErrTooLarge, len(msg.Subject), maxControlLine)
	}
	return msg, nil
}

// The server ends a connection for good on which a line of the protocol is longer
// than its max_control_line, and the line holds the subject. Kubernetes does not
// limit the names of RBAC objects, and an escaped byte is three.
const (
	maxControlLine = 4096 // the server's default
	maxSubject     = maxControlLine - 256
)

func (b *Bus) reply(token uint64) string {
	return b.inbox + strconv.FormatUint(token, 36)
}

// onReply is called by one goroutine of the connection for every answer to a
// publish or to the read after a refusal, one at a time.
func (b *Bus) onReply(msg *natsgo.Msg) {
	token, err := strconv.ParseUint(msg.Subject[len(b.inbox):], 36, 64)
	if err != nil {
		return
	}
	f := b.flights.take(token)
	switch {
	case f == nil: // too late: it was completed as unknown
	case f.reading:
		b.resolve(f, msg)
	default:
		b.acknowledge(f, msg)
	}
}

// acknowledge completes f with the stream's answer, or goes on to find out what
// the stream holds instead.
func (b *Bus) acknowledge(f *flight, msg *natsgo.Msg) {
	if isNoResponders(msg) {
		b.kickSupervisor() // the stream may be gone
		b.finish(f, 0, errNoStream)
		return
	}
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
	}
	err := json.Unmarshal(msg.Data, &ack)
	switch {
	case err != nil:
		b.finish(f, 0, fmt.Errorf("the server's answer is no acknowledgement: %w", err))
	case ack.Error != nil && ack.Error.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence && expects(f.m):
		b.readLast(f)
	case ack.Error != nil:
		err := apiFailure(ack.Error)
		if errors.Is(err, publish.ErrTooLarge) {
			go b.finish(f, 0, err) // done may publish what is left of it, and wait for room
			return
		}
		b.finish(f, 0, err)
	case ack.Stream != b.opts.Stream || ack.Sequence == 0:
		b.kickSupervisor()
		b.finish(f, 0, fmt.Errorf("stream %q took it, not %q", ack.Stream, b.opts.Stream))
	default:
		b.metrics.AckSeconds.Observe(time.Since(f.sent).Seconds())
		b.finish(f, ack.Sequence, nil)
	}
}

// refuse completes a message that was never in flight.
func (b *Bus) refuse(f *flight, err error) {
	b.metrics.Count(outcome.Of(err))
	f.done(0, fmt.Errorf("publish %s: %w: %w", f.m.ID, publish.ErrNotSent, err))
}

// finish completes a flight that the caller has taken.
func (b *Bus) finish(f *flight, position uint64, err error) {
	b.finishAs(outcome.Of(err), f, position, err)
}

func (b *Bus) finishAs(r outcome.Result, f *flight, position uint64, err error) {
	b.release()
	b.metrics.Count(r)
	if err != nil {
		err = fmt.Errorf("publish %s: %w", f.m.ID, err)
	}
	f.done(position, err)
	b.flights.pending.End()
}

func (b *Bus) release() {
	<-b.slots
	b.metrics.InFlight.Dec()
}

// failAll completes what is in flight and answers to cond.
func (b *Bus) failAll(err error, cond func(*flight) bool) {
	for _, f := range b.flights.takeIf(cond) {
		b.finish(f, 0, err)
	}
}

// sweep completes what has waited too long for its answer.
func (b *Bus) sweep(now time.Time) {
	err := errTimeout
	if denied := b.permissionError(); denied != nil {
		err = fmt.Errorf("%w (%w)", errTimeout, denied)
	}
	b.failAll(err, func(f *flight) bool { return now.After(f.deadline) })
}
