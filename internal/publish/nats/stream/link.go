package stream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// Shared is a connection to the server that several Conns use, instead of one connection each. All
// of them have the same servers, credentials, and certificates. Shared connects for the first Conn,
// and disconnects after the last one closes. If the server has closed the connection permanently,
// the next Conn gets a new connection. The zero value is ready for use.
type Shared struct {
	Logger *slog.Logger // the connection's logger; nil means the logger of the first Conn

	mu   sync.Mutex // held while connecting
	link *link
}

// join connects a Conn, with the existing connection if possible.
func (s *Shared) join(ctx context.Context, c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.add(c) {
		return nil
	}
	opts := c.Opts
	opts.Reading, opts.Registerer = nil, nil // these belong to one Conn
	if c.Opts.Shared != nil {
		opts.Cluster = ""
	}
	if s.Logger != nil {
		opts.Logger = s.Logger
	}
	l, err := connectLink(ctx, opts)
	if err != nil {
		return err
	}
	s.link = l
	l.add(c)
	return nil
}

// link is one connection to the server with its credentials. It closes when no Conn uses it.
type link struct {
	NC *natsgo.Conn

	opts     Options
	log      *slog.Logger
	rotation rotation
	gone     atomic.Bool     // the connection closed permanently, see onClosed
	ending   context.Context // ends when the last Conn closes
	end      context.CancelFunc
	watching sync.WaitGroup
	loads    chan struct{} // holds one element for each load in progress

	mu        sync.Mutex
	users     map[*Conn]struct{}
	over      bool  // no further Conn can use the link
	connected bool  // as last reported by the callbacks
	failed    error // the error of the last failed attempt to connect
}

// maxLoads is the maximum number of concurrent loads. The server disconnects a client with more than
// 64 MB of pending data (max_pending), and each load can have [loadBatch] messages pending.
const maxLoads = 2

// connectLink connects, or starts to retry if the server is unreachable. Its errors wrap
// ErrMisconfigured.
func connectLink(ctx context.Context, opts Options) (*link, error) {
	files := opts.files() // created before the files are read, so that no change is missed
	credentials, err := opts.credentials()
	if err != nil {
		return nil, err
	}
	l := &link{
		opts: opts, log: opts.Logger, rotation: rotation{files: files}, users: map[*Conn]struct{}{}, loads: make(chan struct{}, maxLoads),
	}
	l.ending, l.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := l.dial(append(l.connection(), credentials...)); err != nil {
		l.close()
		return nil, err
	}
	l.watching.Go(func() { credential.Watch(l.ending, l.CheckFiles) })
	return l, nil
}

// add registers a Conn as a user of the connection unless the connection has ended, and reports
// whether it did.
func (l *link) add(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.users[c] = struct{}{}
	c.link = l
	if l.connected {
		c.metrics.connected.Set(1)
	} else if l.failed != nil {
		c.note(l.failed)
	}
	return true
}

// remove unregisters a Conn. If other Conns still use the connection, remove returns immediately.
// Otherwise, it closes the connection.
func (l *link) remove(c *Conn) {
	l.mu.Lock()
	delete(l.users, c)
	last := len(l.users) == 0
	l.over = l.over || last
	l.mu.Unlock()
	if last {
		l.close()
	}
}

func (l *link) close() {
	l.end()
	if l.NC != nil {
		l.NC.Close()
	}
	l.watching.Wait()
}

// all returns the Conns that use the connection.
func (l *link) all() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.users))
}

func (l *link) setConnected(connected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected = connected
	for c := range l.users {
		if connected {
			c.metrics.connected.Set(1)
		} else {
			c.metrics.connected.Set(0)
		}
	}
}

// connection returns the nats.go options of every connection.
func (l *link) connection() []natsgo.Option {
	opts := []natsgo.Option{
		natsgo.Name(l.opts.name()),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectEvery),
		natsgo.ReconnectBufSize(-1),              // never buffer a publish for a later connection
		natsgo.IgnoreAuthErrorAbort(),            // rotated credentials might arrive a moment later
		natsgo.PingInterval(pingEvery),           // detects a server that disappears silently
		natsgo.MaxPingsOutstanding(maxPings),     // the server has maxPings+1 intervals to respond
		natsgo.FlusherTimeout(l.opts.AckTimeout), // bounds a blocked write
		natsgo.ConnectHandler(l.onConnect),
		natsgo.ReconnectHandler(func(nc *natsgo.Conn) {
			for _, c := range l.all() {
				c.metrics.reconnects.Inc()
			}
			l.onConnect(nc)
		}),
		natsgo.DisconnectErrHandler(l.onDisconnect),
		natsgo.ClosedHandler(l.onClosed),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { l.noteFailure(err) }),
		natsgo.ErrorHandler(l.onError),
	}
	if l.opts.InboxPrefix != "" {
		opts = append(opts, natsgo.CustomInboxPrefix(l.opts.InboxPrefix))
	}
	if l.opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(l.opts.InProcess))
	}
	return opts
}

const (
	reconnectEvery = 500 * time.Millisecond // pause after all servers were tried
	pingEvery      = 3 * time.Second
	maxPings       = 2
)

// noteFailure records why an attempt to connect failed.
func (l *link) noteFailure(err error) {
	l.mu.Lock()
	l.failed = err
	l.mu.Unlock()
	for _, c := range l.all() {
		c.note(err)
	}
}

func (l *link) onConnect(nc *natsgo.Conn) {
	l.setConnected(true)
	l.log.Info("connected to the bus", "server", l.connectedTo(nc))
	for _, c := range l.all() {
		c.Kick()
	}
}

// onClosed is called when the connection has closed permanently. Unless close was called, the server rejected
// the client with an error after which the client never reconnects, although MaxReconnects is unlimited.
func (l *link) onClosed(nc *natsgo.Conn) {
	if l.ending.Err() != nil {
		return
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.gone.Store(true)
	l.log.Error("connection to the bus closed permanently", "err", nc.LastError())
}

func (l *link) onDisconnect(_ *natsgo.Conn, err error) {
	l.setConnected(false)
	users := l.all()
	for _, c := range users {
		c.disconnected(err)
	}
	if l.ending.Err() == nil {
		l.log.Warn("connection to the bus lost", "err", err)
	}
	for _, c := range users {
		if c.hooks.Disconnected != nil {
			c.hooks.Disconnected()
		}
	}
}

// onError handles errors that the server reports outside of a response. The server reports a
// permission error once per message.
func (l *link) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if errors.Is(err, natsgo.ErrBadHeaderMsg) {
		return // the error is in a stored message, and the reader of the message reports it
	}
	isNew := false
	for _, c := range l.all() {
		if c.concerns(err) {
			isNew = c.note(err) || isNew
		}
	}
	if isNew {
		l.log.Warn("NATS server reported an error", "err", err)
	}
}
