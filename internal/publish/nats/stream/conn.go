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

	"github.com/kuberelay/kuberelay/internal/event"
)

// Conn is a connection to a stream. It is safe for concurrent use.
type Conn struct {
	*link // to the server, for this Conn or several

	Opts Options // with defaults
	JS   jetstream.JetStream

	hooks   Hooks
	log     *slog.Logger
	metrics *metrics
	state   state

	kick    chan struct{}   // makes the supervisor check at once
	working context.Context // ends with Stop
	stop    func()          // ends the workers
	closed  sync.Once
	workers sync.WaitGroup
}

// Hooks are functions of the owner of a Conn. Those that are not required may be nil. They
// may be called before Connect returns.
type Hooks struct {
	// Check checks the stream, and calls [Conn.Found] if it exists. Required. An error with
	// ErrMisconfigured in its chain is permanent.
	Check func(ctx context.Context, c *Conn) error

	// Disconnected is called when the connection breaks.
	Disconnected func()

	// Pause is called before the connection is replaced. It blocks until the owner has nothing
	// in flight, or ctx ends, and holds new messages back until resume is called.
	Pause func(ctx context.Context) (resume func())

	// Responses returns a counter that increases with every response to the owner.
	Responses func() uint64
}

// Connect returns a Conn.
//
// An error that a retry cannot fix is returned at once, with [ErrMisconfigured] in its
// chain: a malformed URL, an unreadable file, rejected credentials, a certificate that does
// not verify, a stream with wrong settings. An unreachable server is not an error: the Conn
// keeps retrying, [Conn.Ready] returns why it is not ready, and [Conn.Wait] waits. ctx
// bounds only Connect.
func Connect(ctx context.Context, opts Options, hooks Hooks) (*Conn, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Conn{Opts: opts, hooks: hooks, log: opts.Logger, metrics: newMetrics(opts.Registerer), kick: make(chan struct{}, 1)}
	c.working, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.state.set(0, errors.New("not connected yet"))
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

// open checks the stream, if connected.
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

// Closing returns a channel that is closed when Close is called.
func (c *Conn) Closing() <-chan struct{} { return c.working.Done() }

// Stop ends the supervision and the requests in progress: from then on, IsClosing returns true
// and Ready an error. The connection stays open until Close.
func (c *Conn) Stop() { c.stop() }

// Close closes the connection, or leaves it to the others that share it. It is idempotent.
func (c *Conn) Close() {
	c.closed.Do(func() {
		c.stop()
		c.remove(c)
		c.workers.Wait()
		c.metrics.connected.Set(0)
	})
}

// CountRead counts a read that the owner sends by itself.
func (c *Conn) CountRead() { c.metrics.reads.Inc() }

// concerns reports whether an error of the connection is about this Conn: not if it is a missing
// permission for the subjects of another cluster.
func (c *Conn) concerns(err error) bool {
	if c.Opts.Cluster == "" || !errors.Is(err, natsgo.ErrPermissionViolation) {
		return true
	}
	own := strings.TrimSuffix(event.ClusterSubjects(c.Opts.SubjectPrefix, c.Opts.Cluster), ">")
	return !strings.Contains(err.Error(), `"`+c.Opts.SubjectPrefix+".") || strings.Contains(err.Error(), `"`+own)
}

// IsClosing reports whether Close was called.
func (c *Conn) IsClosing() bool { return c.working.Err() != nil }

// untilStop returns a context that also ends with Stop. A connection of its own ends requests in
// progress when it closes; one that is shared does not.
func (c *Conn) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.working, cancel)
	return ctx, func() { stop(); cancel() }
}
