package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// ErrMisconfigured is wrapped by errors that a retry cannot fix.
var ErrMisconfigured = stream.ErrMisconfigured

// ErrStreamMissing is wrapped by the error from [Bus.Ready] while the stream does not exist.
var ErrStreamMissing = stream.ErrMissing

// Options configures a Bus.
type Options = stream.Options

// Bus reads a NATS JetStream stream. It is safe for concurrent use.
type Bus struct {
	conn   *stream.Conn
	losses losses
}

// Connect connects to the servers and returns a Bus. It handles errors and ctx as [stream.Connect]
// does.
func Connect(ctx context.Context, o Options) (*Bus, error) {
	b := &Bus{}
	var err error
	b.conn, err = stream.Connect(ctx, o, stream.Hooks{Check: b.find})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// find looks up the stream. It neither creates the stream nor checks its configuration.
func (b *Bus) find(ctx context.Context, c *stream.Conn) error {
	asked := time.Now()
	info, err := c.FindStream(ctx)
	if err == nil {
		c.Found(info)
		b.losses.observe(info, asked, time.Now())
	}
	return err
}

// Ready returns nil while the server is connected and responds, and the stream exists.
func (b *Bus) Ready() error { return b.conn.Ready() }

// Wait blocks until the bus is ready or ctx ends. It returns early with an error that a
// retry cannot fix ([ErrMisconfigured]).
func (b *Bus) Wait(ctx context.Context) error { return b.conn.Wait(ctx) }

// Close closes the connection, which ends subscriptions. It is idempotent.
func (b *Bus) Close() error {
	b.conn.Close()
	return nil
}

// Subjects returns the subjects that have messages in the stream, each once. It might or might not return
// a subject whose first message is stored during the call, or whose last message is removed. It reads
// no messages.
func (b *Bus) Subjects(ctx context.Context) (subjects []string, err error) {
	err = b.conn.Subjects(ctx, b.conn.Opts.Subjects(), func(subject string) { subjects = append(subjects, subject) })
	return subjects, err
}

// Before returns the event before a position on the same subject. It returns nil if that event no
// longer exists or is not a Kuberelay event. Before sends one request to the stream leader for each
// message of the subject. A subject has at most KUBERELAY_NATS_HISTORY messages.
func (b *Bus) Before(ctx context.Context, of string, position uint64) (*event.Message, error) {
	var last *stream.Message
	for from := uint64(1); ; from = last.Sequence + 1 {
		next, err := b.conn.GetMessage(ctx, stream.NextRequest(of, from))
		if err != nil {
			return nil, fmt.Errorf("read the message of subject %q before position %d: %w", of, position, err)
		}
		if next == nil || next.Sequence >= position {
			break
		}
		last = next
	}
	if last == nil {
		return nil, nil
	}
	_, _, key, marker, err := subject.Parse(of)
	if err != nil {
		return nil, nil //nolint:nilerror // as documented
	}
	m, err := binding.Decode(last.Headers, last.Data)
	if err != nil {
		return nil, nil //nolint:nilerror // likewise
	}
	m.Key, m.Marker = key, marker
	return m, nil
}
