package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kuberelay/kuberelay/internal/credential"
)

const (
	// metadataTTL is the age at which kafka-go fetches metadata by itself, at most: it
	// takes a random part of it. It is also its time limit for doing so.
	metadataTTL = 10 * time.Second
	// renewEvery bounds how often connections are made anew for the sake of metadata.
	renewEvery = 500 * time.Millisecond
	// dialTimeout is for one address; kafka-go may try several.
	dialTimeout = 3 * time.Second
)

var errClosed = errors.New("the client is closed")

// transport is kafka-go's Transport with what that lacks: metadata that is found
// stale is dropped, connections follow the files, errors say what failed.
//
// Kafka-go keeps a pool for the cluster: the cached metadata, and idle connections by
// broker, reused last in, first out, for as long as one is used every IdleTimeout. It
// offers no way to have metadata fetched, but CloseIdleConnections forgets the pool.
// The next request makes another, metadata first; requests under way end on the
// former's connections, which are closed then.
type transport struct {
	opts  Options
	log   *slog.Logger
	inner *kafka.Transport
	tls   *handshaker // nil without TLS
	files *credential.Watcher

	reached atomic.Bool // a broker has answered before

	mu      sync.Mutex
	renewed time.Time // when the pool was last forgotten
	renews  int
	conns   map[*conn]struct{}
	closed  bool
}

var _ kafka.RoundTripper = (*transport)(nil)

func newTransport(opts Options) (*transport, error) {
	t := &transport{opts: opts, log: opts.Logger, conns: make(map[*conn]struct{}), files: opts.files()}
	var err error
	if t.tls, err = opts.handshaker(); err != nil {
		return nil, err
	}
	mechanism, err := opts.sasl()
	if err != nil {
		return nil, err
	}
	t.inner = &kafka.Transport{
		Dial:        t.dial,
		DialTimeout: opts.RequestTimeout,
		MetadataTTL: metadataTTL,
		ClientID:    opts.ClientID,
		SASL:        mechanism,
	}
	return t, nil
}

// RoundTrip makes one request.
func (t *transport) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if t.isClosed() {
		return nil, errClosed // kafka-go would make a pool that nobody ends
	}
	started := time.Now()
	res, err := t.inner.RoundTrip(ctx, addr, req)
	if err == nil {
		t.reached.Store(true)
		return res, nil
	}
	if errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) || errors.Is(err, protocol.ErrNoLeader) ||
		errors.Is(err, kafka.BrokerNotAvailable) {
		// Kafka-go says so as well while it has no metadata at all, and keeps the reason
		// for those who ask for metadata. That question does not leave the process.
		if _, why := t.inner.RoundTrip(ctx, addr, &metadata.Request{TopicNames: []string{}}); why != nil {
			err = why
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
	case isTimeout(err): // the pool may still be about to connect
		t.renew(started, t.opts.RequestTimeout/2)
	default:
		t.renew(started, renewEvery)
	}
	return res, t.explain(err)
}

// note drops the metadata if err, of an answer to a request made at started, shows that
// it is stale.
func (t *transport) note(started time.Time, err error) {
	if isStale(err) {
		t.renew(started, renewEvery)
	}
}

// renew forgets the pool, unless that was done after started or a moment ago.
func (t *transport) renew(started time.Time, atMostEvery time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.renewed.Before(started) && time.Since(t.renewed) >= atMostEvery {
		t.forgetPool()
	}
}

func (t *transport) forgetPool() {
	t.renewed = time.Now()
	t.renews++
	t.inner.CloseIdleConnections()
}

// watch looks at the files from time to time until ctx ends.
func (t *transport) watch(ctx context.Context) {
	tick := time.NewTicker(credential.CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.checkFiles()
		}
	}
}

// checkFiles has all connections replaced if a file has changed.
func (t *transport) checkFiles() {
	if !t.files.Changed() {
		return
	}
	t.log.Info("credentials changed, connections are made anew")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetPool()
}

// dial makes every connection, to the brokers named to us and to those that they name.
func (t *transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: min(dialTimeout, t.opts.RequestTimeout)}
	raw, err := dialer.DialContext(ctx, network, address)
	if err == nil && t.tls != nil {
		host, _, splitErr := net.SplitHostPort(address)
		if splitErr != nil {
			host = address
		}
		raw, err = t.tls.handshake(ctx, raw, host)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s%s: %w", address, t.origin(address), err)
	}
	return t.track(raw)
}

// origin says where an address comes from that the user does not know.
func (t *transport) origin(address string) string {
	if slices.Contains(t.opts.Addrs, address) {
		return ""
	}
	return " (which the brokers advertise: advertised.listeners)"
}

// conn is a connection that Close can end.
type conn struct {
	net.Conn

	t *transport
}

func (t *transport) track(raw net.Conn) (net.Conn, error) {
	c := &conn{Conn: raw, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		raw.Close()
		return nil, errClosed
	}
	t.conns[c] = struct{}{}
	return c, nil
}

// Close closes the connection.
func (c *conn) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}

func (t *transport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// close ends all connections, and with them the requests under way.
func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	conns := t.conns
	t.conns = make(map[*conn]struct{})
	t.inner.CloseIdleConnections()
	t.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}
