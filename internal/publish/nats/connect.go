package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bus is a stream of NATS JetStream. Its methods may be called by several
// goroutines at once.
type Bus struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	nc      *natsgo.Conn
	js      jetstream.JetStream

	gone    atomic.Bool   // the client has given up, see onClosed
	created atomic.Uint64 // how often we have created the stream

	inbox   string // prefix of the reply subjects of publishes, with its final dot
	slots   chan struct{}
	flights flights
	state   state

	rotation rotation

	kick    chan struct{} // asks the supervisor to look at once
	stop    func()        // ends the workers
	closing <-chan struct{}
	close   sync.Once
	workers sync.WaitGroup
}

// Connect makes a bus.
//
// What waiting does not cure is an error at once, with [ErrMisconfigured] in its
// chain: a malformed URL, a file that cannot be read, refused credentials, a
// certificate that does not verify, a stream with wrong settings. A server that
// cannot be reached is no error: the bus goes on trying, for ever, and
// [Bus.Ready] says why it is not ready; [Bus.Wait] waits. ctx bounds Connect
// only.
func Connect(ctx context.Context, opts Options) (*Bus, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	files := opts.files() // before they are read: a change in between is seen later
	credentials, err := opts.credentials()
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &Bus{
		opts:    opts,
		log:     opts.Logger,
		metrics: newMetrics(opts.Registerer),
		slots:   make(chan struct{}, opts.MaxInFlight),
		kick:    make(chan struct{}, 1),
		stop:    stop,
		closing: working.Done(),

		rotation: rotation{files: files},
	}
	b.state.set(0, errors.New("not connected yet"))
	if err := b.open(ctx, append(b.connection(), credentials...)); err != nil {
		stop()
		if b.nc != nil {
			b.nc.Close()
		}
		return nil, err
	}
	b.workers.Go(func() { b.supervise(working) })
	b.workers.Go(func() { b.sweepOften(working) })
	b.workers.Go(func() { b.watchFiles(working) })
	return b, nil
}

// open connects, if it can, and then looks at the stream.
func (b *Bus) open(ctx context.Context, opts []natsgo.Option) error {
	if err := b.dial(opts); err != nil {
		return err
	}
	b.inbox = b.nc.NewInbox() + "."
	sub, err := b.nc.Subscribe(b.inbox+"*", b.onReply)
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // MaxInFlight bounds them
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return err
	}
	if b.nc.IsConnected() {
		if err := b.look(ctx); errors.Is(err, ErrMisconfigured) {
			return err
		}
	}
	return nil
}

// connection gives the options of every connection.
func (b *Bus) connection() []natsgo.Option {
	opts := []natsgo.Option{
		natsgo.Name("kuberelay " + b.opts.Cluster),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectEvery),
		natsgo.ReconnectBufSize(-1),              // a publish is never buffered for a later connection
		natsgo.IgnoreAuthErrorAbort(),            // rotated credentials may be there a moment later
		natsgo.PingInterval(pingEvery),           // a server that is gone without a word is noticed
		natsgo.MaxPingsOutstanding(2),            // within three of these
		natsgo.FlusherTimeout(b.opts.AckTimeout), // a write blocks no longer than that
		natsgo.ConnectHandler(b.onConnect),
		natsgo.ReconnectHandler(func(nc *natsgo.Conn) {
			b.metrics.reconnects.Inc()
			b.onConnect(nc)
		}),
		natsgo.DisconnectErrHandler(b.onDisconnect),
		natsgo.ClosedHandler(b.onClosed),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { b.state.note(err) }),
		natsgo.ErrorHandler(b.onError),
	}
	if b.opts.InProcess != nil {
		opts = append(opts, natsgo.InProcessServer(b.opts.InProcess))
	}
	return opts
}

const (
	reconnectEvery = 500 * time.Millisecond // after all servers were tried
	pingEvery      = 10 * time.Second
)

// dial connects, or leaves the connection trying if that may help.
func (b *Bus) dial(opts []natsgo.Option) error {
	urls := strings.Join(b.opts.URLs, ",")
	var err error
	b.nc, err = natsgo.Connect(urls, opts...)
	if err == nil {
		return nil
	}
	if isPermanent(err) {
		return misconfigured("connect to %s: %w", b.servers(), err)
	}
	b.log.Warn("cannot reach the bus, trying on", "servers", b.servers(), "err", err)
	b.state.note(err)
	b.nc, err = natsgo.Connect(urls, append(opts, natsgo.RetryOnFailedConnect(true))...)
	if err != nil {
		return misconfigured("connect to %s: %w", b.servers(), err)
	}
	return nil
}

// isPermanent tells which failures of a connection attempt waiting does not cure.
func isPermanent(err error) bool {
	for _, target := range []error{
		natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired,
		natsgo.ErrNkeysNotSupported, natsgo.ErrSecureConnRequired, natsgo.ErrSecureConnWanted,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	// Of TLS: what we find wrong; what the server finds wrong, which by TLS 1.3 we
	// learn only after the handshake, as its alert ("remote error"); or that it
	// closed the connection then, without our having seen the alert.
	var network *net.OpError
	if errors.As(err, &network) && (network.Timeout() || network.Op == "remote error") {
		return !network.Timeout()
	}
	return errors.Is(err, natsgo.ErrTLS)
}

// servers names the servers for logs and errors, without credentials.
func (b *Bus) servers() string {
	if b.opts.InProcess != nil {
		return "the server in this process"
	}
	redacted := make([]string, len(b.opts.URLs))
	for i, s := range b.opts.URLs {
		redacted[i] = redact(s)
	}
	return strings.Join(redacted, ",")
}

// redact takes what could be a credential out of a URL.
func redact(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(unreadable URL)"
	}
	if u.Host == "" { // host:port, as nats.go takes it
		return s
	}
	return fmt.Sprintf("%s://%s", u.Scheme, u.Host)
}

// connectedTo is for the log. Without a socket the client's own answer is a made-up
// address.
func (b *Bus) connectedTo(nc *natsgo.Conn) string {
	if b.opts.InProcess != nil {
		return "built in"
	}
	return redact(nc.ConnectedUrl())
}

// onConnect is called by the connection, for the first and for later ones.
func (b *Bus) onConnect(nc *natsgo.Conn) {
	b.metrics.connected.Set(1)
	b.log.Info("connected to the bus", "server", b.connectedTo(nc))
	b.kickSupervisor()
}

// onClosed is called when the connection has ended for good. Where that is not our
// own doing, the server has refused something in a way that the client does not
// know how to go on from; MaxReconnects does not apply.
func (b *Bus) onClosed(nc *natsgo.Conn) {
	if b.isClosing() {
		return
	}
	b.gone.Store(true)
	b.log.Error("the connection to the bus has ended for good", "err", nc.LastError())
}

// onDisconnect fails what is in flight: the answers, if any, are lost.
func (b *Bus) onDisconnect(_ *natsgo.Conn, err error) {
	b.metrics.connected.Set(0)
	b.state.disconnected(err)
	if !b.isClosing() {
		b.log.Warn("connection to the bus lost", "err", err)
	}
	b.failAll(errLost, func(*flight) bool { return true })
}

// onError takes what the server says outside of any answer. A refused permission
// comes once for each message.
func (b *Bus) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	if b.state.note(err) {
		b.log.Warn("the bus reports an error", "err", err)
	}
}

func (b *Bus) isClosing() bool {
	select {
	case <-b.closing:
		return true
	default:
		return false
	}
}
