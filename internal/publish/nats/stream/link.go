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
)

// Shared is a connection to the server that several Conns use, in place of one for each. They
// have the same servers, credentials and certificates. It connects for the first of them, and
// disconnects after the last. If the server has closed the connection permanently, the next
// Conn gets another one. The zero value is ready for use.
type Shared struct {
	Logger *slog.Logger // of the connection; that of the first Conn if nil

	mu   sync.Mutex // held while connecting
	link *link
}

// join gives a Conn the connection.
func (s *Shared) join(ctx context.Context, c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && s.link.add(c) {
		return nil
	}
	opts := c.Opts
	opts.Reading, opts.Registerer = nil, nil // of the Conn
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

// link is one connection to the server, and its credentials. It ends when no Conn uses it.
type link struct {
	NC *natsgo.Conn

	opts     Options
	log      *slog.Logger
	rotation rotation
	gone     atomic.Bool     // closed permanently, see onClosed
	ending   context.Context // ends with the last Conn
	end      context.CancelFunc
	watching sync.WaitGroup
	loads    chan struct{} // has an element for each load in progress

	mu        sync.Mutex
	users     map[*Conn]struct{}
	over      bool  // no other Conn can use it
	connected bool  // as the callbacks have reported
	failed    error // the last error of an attempt to connect
}

// maxLoads is the maximum number of concurrent loads. The server disconnects a client for which more
// than 64 MB wait (max_pending), and [loadBatch] messages of each load can wait.
const maxLoads = 2

// connectLink connects, if possible. An error has ErrMisconfigured in its chain.
func connectLink(ctx context.Context, opts Options) (*link, error) {
	files := opts.files() // before the files are read, so that no change is missed
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
	l.watching.Go(func() { l.watchFiles(l.ending) })
	return l, nil
}

// add lets a Conn use the connection. It returns false if the connection has ended.
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
		c.state.note(l.failed)
	}
	return true
}

// remove ends the use by a Conn. The last one closes the connection. It waits for no other Conn.
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

// setConnected records whether the connection exists.
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

// connection returns the options of every connection.
func (l *link) connection() []natsgo.Option {
	opts := []natsgo.Option{
		natsgo.Name(l.opts.name()),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectEvery),
		natsgo.ReconnectBufSize(-1),              // never buffer a publish for a later connection
		natsgo.IgnoreAuthErrorAbort(),            // rotated credentials may arrive a moment later
		natsgo.PingInterval(pingEvery),           // detect a server that disappears silently
		natsgo.MaxPingsOutstanding(maxPings),     // within maxPings+1 intervals
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
	reconnectEvery = 500 * time.Millisecond // after all servers were tried
	pingEvery      = 3 * time.Second
	maxPings       = 2
)

// noteFailure records why an attempt to connect failed.
func (l *link) noteFailure(err error) {
	l.mu.Lock()
	l.failed = err
	l.mu.Unlock()
	for _, c := range l.all() {
		c.state.note(err)
	}
}

// onConnect is called after the first and every later connect.
func (l *link) onConnect(nc *natsgo.Conn) {
	l.setConnected(true)
	l.log.Info("connected to the bus", "server", l.connectedTo(nc))
	for _, c := range l.all() {
		c.Kick()
	}
}

// onClosed is called when the connection has closed permanently. Unless close did it, the
// server rejected something in a way that the client cannot recover from; MaxReconnects
// does not apply.
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

// onDisconnect is called when the connection breaks.
func (l *link) onDisconnect(_ *natsgo.Conn, err error) {
	l.setConnected(false)
	users := l.all()
	for _, c := range users {
		c.state.disconnected(err)
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

// onError handles errors that the server reports outside of a response. A permission error
// arrives once per message.
func (l *link) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if errors.Is(err, natsgo.ErrBadHeaderMsg) {
		return // of a stored message, which its reader reports
	}
	isNew := false
	for _, c := range l.all() {
		if c.concerns(err) {
			isNew = c.state.note(err) || isNew
		}
	}
	if isNew {
		l.log.Warn("NATS server reported an error", "err", err)
	}
}
