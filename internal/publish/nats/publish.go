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
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Publish implements [publish.Publisher]. It blocks while [Options.MaxInFlight] messages await their
// acknowledgement, but only until ctx ends. ctx does not affect a message that was sent. While the
// bus is not ready, Publish fails at once.
//
// The asynchronous publish of the JetStream client is not sufficient. It holds its lock while it
// reports a timeout, and allocates a timer per message. If no stream responds, it republishes, which
// could reorder messages.
func (b *Bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	f := &flight{m: m, done: done, sent: time.Now()}
	h := binding.NewHeader()
	defer h.Free()
	msg, err := b.prepare(m, h)
	if err != nil {
		b.reject(f, err)
		return
	}
	f.subject = msg.Subject
	select {
	case f.slot = <-b.flights.free:
	case <-ctx.Done():
		b.reject(f, publish.Failure(publish.ResultCancelled, ctx.Err()))
		return
	case <-b.conn.Closing():
		b.reject(f, errClosed)
		return
	}
	b.metrics.InFlight.Inc()
	if err := b.opts.Permit.Check(); err != nil { // checked after the wait for the in-flight limit
		b.release(f)
		b.reject(f, publish.Failure(publish.ResultNotReady, err))
		return
	}
	b.flights.pending.Begin()
	f.deadline = time.Now().Add(b.opts.AckTimeout)
	if !b.flights.put(f) {
		b.release(f)
		b.reject(f, errClosed)
		b.flights.pending.End()
		return
	}
	msg.Reply = b.reply(f.token)
	if err := b.conn.NC.PublishMsg(msg); err != nil && b.flights.take(f.token) != nil {
		b.finish(f, 0, b.sendFailure(err, msg))
	}
}

// prepare returns the NATS message for m, or an error if m cannot be published.
func (b *Bus) prepare(m *event.Message, h *binding.Header) (*natsgo.Msg, error) {
	if err := b.Ready(); err != nil {
		return nil, publish.Failure(publish.ResultNotReady, err)
	}
	msg, err := binding.Encode(m, b.opts.ContentMode == Structured, h)
	if err != nil {
		return nil, err
	}
	msg.Subject = subject.Message(b.opts.SubjectPrefix, b.opts.Cluster, m)
	if len(msg.Subject) > maxSubject {
		return nil, fmt.Errorf("%w: the subject has %d bytes, and the server closes the connection at a line of %d bytes", publish.ErrTooLarge, len(msg.Subject), maxControlLine)
	}
	return msg, nil
}

// A server permanently closes a connection after a protocol line longer than its max_control_line,
// and the line contains the subject. Kubernetes does not limit the length of RBAC object names, and
// an escaped byte takes three bytes.
const (
	maxControlLine = 4096 // the server's default
	maxSubject     = maxControlLine - 256
)

func (b *Bus) reply(token uint64) string {
	return b.inbox + strconv.FormatUint(token, 36)
}

// onReply handles the responses to publishes and to reads after a rejection. One goroutine of the
// connection calls it, with one response at a time.
func (b *Bus) onReply(msg *natsgo.Msg) {
	token, err := strconv.ParseUint(msg.Subject[len(b.inbox):], 36, 64)
	if err != nil {
		return
	}
	b.answers.Add(1)
	f := b.flights.take(token)
	switch {
	case f == nil: // too late: the message was completed with an unknown outcome
	case f.reading:
		b.resolve(f, msg)
	default:
		b.acknowledge(f, msg)
	}
}

// acknowledge completes f with the response of the stream. If compare-and-set rejected the message,
// acknowledge reads the last message of the subject first.
func (b *Bus) acknowledge(f *flight, msg *natsgo.Msg) {
	if stream.IsNoResponders(msg) {
		b.conn.Kick() // the stream might no longer exist
		b.finish(f, 0, stream.ErrNoStream)
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
		b.finish(f, 0, fmt.Errorf("the server's response is not an acknowledgement: %w", err))
	case ack.Error != nil && ack.Error.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence && binding.IsConditional(f.m):
		b.readLast(f)
	case ack.Error != nil:
		err := stream.APIFailure(ack.Error)
		if errors.Is(err, publish.ErrTooLarge) {
			go b.finish(f, 0, err) // not here, because done may publish a smaller form and block
			return
		}
		b.finish(f, 0, err)
	case ack.Stream != b.opts.Stream || ack.Sequence == 0:
		b.conn.Kick()
		b.finish(f, 0, fmt.Errorf("stream %q stored the message, not %q", ack.Stream, b.opts.Stream))
	default:
		b.metrics.AckSeconds.Observe(time.Since(f.sent).Seconds())
		b.finish(f, ack.Sequence, nil)
	}
}

// reject completes a message that was never in flight.
func (b *Bus) reject(f *flight, err error) {
	b.metrics.Count(publish.ResultOf(err))
	f.done(0, fmt.Errorf("publish %s: %w: %w", f.m.ID, publish.ErrNotSent, err))
}

// finish completes a flight that the caller took out of flights.
func (b *Bus) finish(f *flight, position uint64, err error) {
	b.finishAs(publish.ResultOf(err), f, position, err)
}

func (b *Bus) finishAs(r publish.Result, f *flight, position uint64, err error) {
	b.release(f)
	b.metrics.Count(r)
	if err != nil {
		err = fmt.Errorf("publish %s: %w", f.m.ID, err)
	}
	f.done(position, err)
	b.flights.pending.End()
}

// release allows another message to be in flight.
func (b *Bus) release(f *flight) {
	b.flights.free <- f.slot
	b.metrics.InFlight.Dec()
}

// failAll completes the messages in flight for which cond returns true, with err.
func (b *Bus) failAll(err error, cond func(*flight) bool) {
	for _, f := range b.flights.takeIf(cond) {
		b.finish(f, 0, err)
	}
}

// sweep completes the messages that timed out.
func (b *Bus) sweep(now time.Time) {
	err := errTimeout
	if denied := b.conn.PermissionError(); denied != nil {
		err = fmt.Errorf("%w (%w)", errTimeout, denied)
	}
	b.failAll(err, func(f *flight) bool { return now.After(f.deadline) })
}
