package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event/subject"
)

// Conn is a connection to a stream. It is safe for concurrent use.
type Conn struct {
	*link // the connection to the server, for this Conn or shared by several

	Opts Options // with defaults applied
	JS   jetstream.JetStream

	hooks   Hooks
	log     *slog.Logger
	metrics *metrics
	state

	kick    chan struct{}   // makes the supervisor check at once
	working context.Context // ends when Stop is called
	stop    func()          // ends working, and with it the workers
	closed  sync.Once
	workers sync.WaitGroup
}

// Hooks are functions of the owner of a Conn. Only Check is required, and the others may be nil. Connect may
// call any of them before it returns.
type Hooks struct {
	// Check checks the stream, and calls [Conn.Found] if the stream exists. An error that wraps
	// ErrMisconfigured is permanent.
	Check func(ctx context.Context, c *Conn) error

	// Disconnected is called when the connection breaks.
	Disconnected func()

	// Pause is called before the connection is replaced. It holds new messages back until resume is
	// called, and blocks until the owner has no messages in flight or ctx ends.
	Pause func(ctx context.Context) (resume func())

	// Responses returns a counter that increases with every response that the owner receives.
	Responses func() uint64
}

// Connect connects to the servers and returns a Conn.
//
// If a retry cannot fix an error, Connect returns the error at once. The error then wraps
// [ErrMisconfigured], for example because of a malformed URL, an unreadable file, rejected
// credentials, a certificate that does not verify, or a stream with wrong settings. An unreachable
// server is not an error: the Conn keeps retrying, [Conn.Ready] returns why it is not ready, and
// [Conn.Wait] waits. ctx bounds only Connect.
func Connect(ctx context.Context, opts Options, hooks Hooks) (*Conn, error) {
	opts = opts.WithDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Conn{Opts: opts, hooks: hooks, log: opts.Logger, metrics: newMetrics(opts.Registerer), kick: make(chan struct{}, 1)}
	c.working, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.current.Store(&phase{err: errors.New("not connected yet"), over: make(chan struct{})})
	if err := cmp.Or(opts.Shared, &Shared{}).join(ctx, c); err != nil {
		c.stop()
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		c.Close()
		return nil, err
	}
	c.workers.Go(func() { c.supervise(c.working) })
	return c, nil
}

// open creates the JetStream client, and checks the stream if the connection exists.
func (c *Conn) open(ctx context.Context) (err error) {
	if c.Opts.Domain == "" {
		c.JS, err = jetstream.New(c.NC)
	} else {
		c.JS, err = jetstream.NewWithDomain(c.NC, c.Opts.Domain)
	}
	if err != nil {
		return err
	}
	if c.NC.IsConnected() {
		if err := c.Check(ctx); errors.Is(err, ErrMisconfigured) {
			return err
		}
	}
	return nil
}

// Closing returns a channel that is closed when Stop or Close is called.
func (c *Conn) Closing() <-chan struct{} { return c.working.Done() }

// Stop ends the supervision and the requests in progress. From then on, IsClosing returns true and
// Ready returns an error. The connection stays open until Close.
func (c *Conn) Stop() { c.stop() }

// Close closes the connection, unless other Conns share it. It is idempotent.
func (c *Conn) Close() {
	c.closed.Do(func() {
		c.stop()
		c.remove(c)
		c.workers.Wait()
		c.metrics.connected.Set(0)
	})
}

// CountRead counts a read that the owner sends without the methods of Conn.
func (c *Conn) CountRead() { c.metrics.reads.Inc() }

// concerns reports whether an error of the connection concerns this Conn. A missing permission for
// the subjects of another cluster does not.
func (c *Conn) concerns(err error) bool {
	if c.Opts.Cluster == "" || !errors.Is(err, natsgo.ErrPermissionViolation) {
		return true
	}
	own := strings.TrimSuffix(subject.Cluster(c.Opts.SubjectPrefix, c.Opts.Cluster), ">")
	return !strings.Contains(err.Error(), `"`+c.Opts.SubjectPrefix+".") || strings.Contains(err.Error(), `"`+own)
}

// IsClosing reports whether Stop or Close was called.
func (c *Conn) IsClosing() bool { return c.working.Err() != nil }

// untilStop returns a context that also ends when Stop is called. With ctx alone, requests in
// progress on a shared connection would continue after Stop, because that connection stays open for
// the other Conns.
func (c *Conn) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.working, cancel)
	return ctx, func() { stop(); cancel() }
}
