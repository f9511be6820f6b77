package stream

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Conn is a connection to a stream. It is safe for concurrent use.
type Conn struct {
	Opts Options // with defaults
	NC   *natsgo.Conn
	JS   jetstream.JetStream

	hooks   Hooks
	log     *slog.Logger
	metrics *metrics
	gone    atomic.Bool // the connection is closed permanently, see onClosed

	state    state
	rotation rotation

	kick    chan struct{} // makes the supervisor check at once
	stop    func()        // ends the workers
	closing <-chan struct{}
	close   sync.Once
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

	// Pause is called before the connection is replaced. It blocks until nothing is in
	// flight, or ctx ends, and holds new messages back until resume is called.
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
	files := opts.files() // before the files are read, so that no change is missed
	credentials, err := opts.credentials()
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &Conn{
		Opts:    opts,
		hooks:   hooks,
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer),
		kick:    make(chan struct{}, 1),
		stop:    stop,
		closing: working.Done(),

		rotation: rotation{files: files},
	}
	c.state.set(0, errors.New("not connected yet"))
	if err := c.open(ctx, append(c.connection(), credentials...)); err != nil {
		stop()
		if c.NC != nil {
			c.NC.Close()
		}
		return nil, err
	}
	c.workers.Go(func() { c.supervise(working) })
	c.workers.Go(func() { c.watchFiles(working) })
	return c, nil
}

// open connects, if possible, and then checks the stream.
func (c *Conn) open(ctx context.Context, opts []natsgo.Option) error {
	if err := c.dial(opts); err != nil {
		return err
	}
	var err error
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
func (c *Conn) Closing() <-chan struct{} { return c.closing }

// Stop ends the supervision: from then on, IsClosing returns true and Ready an error. The
// connection stays open until Close.
func (c *Conn) Stop() { c.stop() }

// Close closes the connection. It is idempotent.
func (c *Conn) Close() {
	c.close.Do(func() {
		c.stop()
		c.NC.Close()
		c.workers.Wait()
		c.metrics.connected.Set(0)
	})
}

// CountRead counts a read that the owner sends by itself.
func (c *Conn) CountRead() { c.metrics.reads.Inc() }

// connection returns the options of every connection.
func (c *Conn) connection() []natsgo.Option {
	opts := []natsgo.Option{
		natsgo.Name("kuberelay " + c.Opts.Cluster),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectEvery),
		natsgo.ReconnectBufSize(-1),              // never buffer a publish for a later connection
		natsgo.IgnoreAuthErrorAbort(),            // rotated credentials may arrive a moment later
		natsgo.PingInterval(pingEvery),           // detect a server that disappears silently
		natsgo.MaxPingsOutstanding(maxPings),     // within maxPings+1 intervals
		natsgo.FlusherTimeout(c.Opts.AckTimeout), // bounds a blocked write
		natsgo.ConnectHandler(c.onConnect),
		natsgo.ReconnectHandler(func(nc *natsgo.Conn) {
			c.metrics.reconnects.Inc()
			c.onConnect(nc)
		}),
		natsgo.DisconnectErrHandler(c.onDisconnect),
		natsgo.ClosedHandler(c.onClosed),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { c.state.note(err) }),
		natsgo.ErrorHandler(c.onError),
	}
	if c.Opts.InboxPrefix != "" {
		opts = append(opts, natsgo.CustomInboxPrefix(c.Opts.InboxPrefix))
	}
	if c.Opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(c.Opts.InProcess))
	}
	return opts
}

const (
	reconnectEvery = 500 * time.Millisecond // after all servers were tried
	pingEvery      = 3 * time.Second
	maxPings       = 2
)

// onConnect is called after the first and every later connect.
func (c *Conn) onConnect(nc *natsgo.Conn) {
	c.metrics.connected.Set(1)
	c.log.Info("connected to the bus", "server", c.connectedTo(nc))
	c.Kick()
}

// onClosed is called when the connection has closed permanently. Unless Close did it, the
// server rejected something in a way that the client cannot recover from; MaxReconnects
// does not apply.
func (c *Conn) onClosed(nc *natsgo.Conn) {
	if c.IsClosing() {
		return
	}
	c.gone.Store(true)
	c.log.Error("connection to the bus closed permanently", "err", nc.LastError())
}

// onDisconnect is called when the connection breaks.
func (c *Conn) onDisconnect(_ *natsgo.Conn, err error) {
	c.metrics.connected.Set(0)
	c.state.disconnected(err)
	if !c.IsClosing() {
		c.log.Warn("connection to the bus lost", "err", err)
	}
	if c.hooks.Disconnected != nil {
		c.hooks.Disconnected()
	}
}

// onError handles errors that the server reports outside of a response. A permission error
// arrives once per message.
func (c *Conn) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if errors.Is(err, natsgo.ErrBadHeaderMsg) {
		return // of a stored message, which its reader reports
	}
	if c.state.note(err) {
		c.log.Warn("NATS server reported an error", "err", err)
	}
}

// IsClosing reports whether Close was called.
func (c *Conn) IsClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}
