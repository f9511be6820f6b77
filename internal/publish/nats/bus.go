package nats

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

// Bus publishes to a NATS JetStream stream. It is safe for concurrent use.
type Bus struct {
	opts    Options
	log     *slog.Logger
	metrics *publish.Metrics
	conn    *stream.Conn

	risks   atomic.Pointer[[]publish.Risk] // found by the last check of the stream
	answers atomic.Uint64                  // number of responses that onReply received
	inbox   string                         // prefix of the reply subjects of publishes, with a final dot
	replies *natsgo.Subscription           // subscription to the reply subjects
	flights *flights

	close   sync.Once
	workers sync.WaitGroup
}

var _ publish.Bus = (*Bus)(nil)

// Connect connects to the servers and returns a Bus. It handles errors and ctx as [stream.Connect]
// does.
func Connect(ctx context.Context, opts Options) (*Bus, error) {
	opts = opts.WithDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	b := &Bus{
		opts: opts, log: opts.Logger, flights: newFlights(opts.MaxInFlight),
		metrics: publish.NewMetrics(opts.Registerer, "nats", stream.ResultFull, stream.ResultDisconnected, stream.ResultNoStream),
	}
	conn, err := stream.Connect(ctx, opts.Connection, stream.Hooks{
		Check:        b.ensureStream,
		Disconnected: func() { b.failAll(errLost, func(*flight) bool { return true }) }, // the responses to these messages are lost
		Pause:        b.pause,
		Responses:    b.answers.Load,
	})
	if err != nil {
		return nil, err
	}
	b.conn = conn
	if err := b.awaitReplies(); err != nil {
		conn.Close()
		return nil, err
	}
	b.workers.Go(func() {
		wait.Until(func() { b.sweep(time.Now()) }, max(b.opts.AckTimeout/8, time.Millisecond), b.conn.Closing())
	})
	return b, nil
}

// awaitReplies subscribes to the responses to publishes.
func (b *Bus) awaitReplies() (err error) {
	b.inbox = b.conn.NC.NewInbox() + "."
	b.replies, err = b.conn.NC.Subscribe(b.inbox+"*", b.onReply)
	if err == nil {
		err = b.replies.SetPendingLimits(-1, -1) // MaxInFlight bounds the responses
	}
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	return nil
}

// pause blocks further calls of Publish until resume is called. It returns when no messages are in
// flight, or ctx ends.
func (b *Bus) pause(ctx context.Context) (resume func()) {
	var held []uint64
	for len(held) < cap(b.flights.free) && ctx.Err() == nil {
		select {
		case slot := <-b.flights.free:
			held = append(held, slot)
		case <-ctx.Done():
		}
	}
	return func() {
		for _, slot := range held {
			b.flights.free <- slot
		}
	}
}

// Ready implements [publish.Publisher]. It returns nil while the server is connected and responds,
// and the stream has the right settings. If the server stops responding, Ready returns an error
// within 10 s.
func (b *Bus) Ready() error { return b.conn.Ready() }

// Wait blocks until the bus is ready or ctx ends. It returns early with an error that a
// retry cannot fix ([ErrMisconfigured]).
func (b *Bus) Wait(ctx context.Context) error { return b.conn.Wait(ctx) }

// PossibleLosses returns [stream.Conn.PossibleLosses].
func (b *Bus) PossibleLosses() uint64 { return b.conn.PossibleLosses() }

// Stream returns the creation time of the stream, which identifies it. It returns "" until a stream
// is found.
func (b *Bus) Stream() string { return b.conn.Stream() }

// closeTimeout bounds the time that Close waits for the done functions to return.
const closeTimeout = 5 * time.Second

// Close implements [publish.Publisher]. It calls the done function of each message in flight, and
// waits up to closeTimeout until they have returned.
func (b *Bus) Close() error {
	var err error
	b.close.Do(func() {
		b.conn.Stop()
		for _, f := range b.flights.close() {
			b.finish(f, 0, errClosed)
		}
		_ = b.replies.Unsubscribe() // fails only if the connection is closed
		b.conn.Close()
		b.workers.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err = b.flights.pending.Wait(ctx); err != nil {
			err = fmt.Errorf("wait for acknowledgements: %w", err)
		}
	})
	return err
}
