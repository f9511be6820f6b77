package broker

import (
	"cmp"
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
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
)

const (
	// metadataTTL is the maximum interval at which kafka-go refreshes metadata. kafka-go picks
	// a random interval up to this maximum. The value is also kafka-go's timeout for the
	// refresh.
	metadataTTL = 10 * time.Second
	// renewEvery is the minimum interval between replacements of the connection pool
	// because of stale metadata.
	renewEvery = 500 * time.Millisecond
	// dialTimeout applies to one address. kafka-go might try several addresses.
	dialTimeout = 3 * time.Second
)

// transport extends kafka-go's Transport: it drops stale metadata, reconnects when
// credential files change, and explains errors.
//
// kafka-go keeps one connection pool for the cluster. The pool contains cached metadata and the
// idle connections to each broker. kafka-go reuses the last idle connection first, and closes a
// connection that is idle for IdleTimeout. It provides no way to refresh the metadata, so
// transport replaces the whole kafka-go Transport once the new one has metadata. Until then,
// requests continue on the old pool, because the broker that receives the metadata request might
// hang. Requests in progress finish on the old pool's connections, which then close.
type transport struct {
	opts  Options
	log   *slog.Logger
	tls   *login.TLS // nil without TLS
	files *credential.Watcher
	auth  login.Mechanism // nil without SASL

	reached  atomic.Bool // a broker has responded before
	notKafka atomic.Bool // a server that is not a broker has responded
	closing  context.Context
	stop     context.CancelFunc
	workers  sync.WaitGroup
	renewal  sync.Mutex // held while the pool is replaced or forgotten

	pool   atomic.Pointer[pool] // changed while mu is held
	closed atomic.Bool          // set while mu is held

	mu       sync.Mutex
	renewed  time.Time // when the pool was last replaced
	renews   int
	renewErr error // of the last attempt to replace the pool; nil if it succeeded
	conns    map[*conn]struct{}
	clients  int // number of Clients that use the transport
}

// pool is a kafka-go Transport.
type pool struct {
	kafka.Transport

	warm atomic.Bool // the pool has metadata
}

var _ kafka.RoundTripper = (*transport)(nil)

func newTransport(opts Options) (*transport, error) {
	t := &transport{opts: opts, log: opts.Logger, conns: make(map[*conn]struct{}), files: opts.files()}
	var err error
	if opts.TLS {
		if t.tls, err = login.NewTLS(opts.CAFile, opts.CertFile, opts.KeyFile, opts.ServerName, opts.Logger); err != nil {
			return nil, err
		}
	}
	if t.auth, err = opts.mechanism(); err != nil {
		return nil, err
	}
	t.closing, t.stop = context.WithCancel(context.Background())
	first := &pool{Transport: kafka.Transport{
		Dial:        t.dial,
		DialTimeout: opts.RequestTimeout,
		MetadataTTL: metadataTTL,
		ClientID:    opts.ClientID,
	}}
	if t.auth != nil {
		first.SASL = t.auth
	}
	t.pool.Store(first)
	t.workers.Go(func() {
		credential.Watch(t.closing, func(ctx context.Context) {
			t.checkFiles()
			t.renewToken(ctx)
		})
	})
	return t, nil
}

// RoundTrip sends one request.
func (t *transport) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if t.closed.Load() {
		return nil, failure.ErrClosed // kafka-go would create a pool that is never closed
	}
	started, p := time.Now(), t.pool.Load()
	defer t.closeUnused(p)
	res, err := p.RoundTrip(ctx, addr, req)
	if err == nil {
		t.reached.Store(true)
		p.warm.Store(true) // a pool needs metadata to complete a request
		return res, nil
	}
	isNoBroker := errors.Is(err, protocol.ErrNoLeader) || errors.Is(err, kafka.BrokerNotAvailable)
	if isNoBroker || errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) {
		// kafka-go also returns these errors while it has no metadata at all. It reports the
		// reason only to a metadata request. kafka-go serves this request from its cache.
		if _, why := p.RoundTrip(ctx, addr, &metadata.Request{TopicNames: []string{}}); why != nil {
			err = why
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
	case failure.IsTimeout(err): // the pool might still be connecting, or the broker hangs
		t.renewSoon(started)
	default:
		t.renew(started, renewEvery)
		if isNoBroker { // kafka-go keeps metadata without a broker while it can't fetch any
			t.mu.Lock()
			err = cmp.Or(t.renewErr, err)
			t.mu.Unlock()
		}
	}
	return res, t.explain(err)
}

// closeUnused closes a pool that was replaced, or whose transport was closed, after a request chose the pool.
// kafka-go opens the closed pool again for the request, and would then keep it open forever.
func (t *transport) closeUnused(p *pool) {
	if t.closed.Load() || t.pool.Load() != p {
		p.CloseIdleConnections()
	}
}

// note renews the metadata if err shows that it is stale. err is from the response to a request
// that was sent at started.
func (t *transport) note(started time.Time, err error) {
	if isStale(err) {
		t.renew(started, renewEvery)
	}
}

// renewLimit bounds the time that a new pool has to fetch its first metadata.
const renewLimit = 3 * time.Second

// renew replaces the pool, unless it was replaced after started or within atMostEvery. If the
// old pool has metadata and the new pool cannot fetch any, renew keeps the old pool.
func (t *transport) renew(started time.Time, atMostEvery time.Duration) {
	t.renewal.Lock()
	defer t.renewal.Unlock()
	t.mu.Lock()
	if t.closed.Load() || !t.renewed.Before(started) || time.Since(t.renewed) < atMostEvery {
		t.mu.Unlock()
		return
	}
	t.renewed = time.Now()
	t.renews++
	former := t.pool.Load()
	t.mu.Unlock()

	next := &pool{Transport: kafka.Transport{
		Dial: former.Dial, DialTimeout: former.DialTimeout, IdleTimeout: former.IdleTimeout, MetadataTTL: former.MetadataTTL,
		ClientID: former.ClientID, SASL: former.SASL,
	}}
	ctx, cancel := context.WithTimeout(t.closing, renewLimit)
	_, err := next.RoundTrip(ctx, kafka.TCP(t.opts.Addrs...), &metadata.Request{TopicNames: []string{}})
	cancel()
	next.warm.Store(err == nil)

	t.mu.Lock()
	t.renewErr = err
	unused := next
	if !t.closed.Load() && (err == nil || !former.warm.Load()) {
		t.pool.Store(next)
		unused = former
	}
	t.mu.Unlock()
	unused.CloseIdleConnections()
}

// renewSoon calls renew in the background, after a request timed out.
func (t *transport) renewSoon(started time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed.Load() {
		t.workers.Go(func() { t.renew(started, t.opts.RequestTimeout/2) })
	}
}

// forgetPool closes the idle connections at once, and each connection in use when its request ends. Unlike
// renew, it does not wait until new connections succeed. It waits for a replacement in progress, whose
// connection can be older than the new credentials.
func (t *transport) forgetPool() {
	t.renewal.Lock()
	defer t.renewal.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = time.Now()
	t.renews++
	t.renewErr = nil
	p := t.pool.Load()
	p.warm.Store(false)
	p.CloseIdleConnections()
}

// checkFiles replaces all connections if a file changed.
func (t *transport) checkFiles() {
	if !t.files.Changed() {
		return
	}
	t.log.Info("credentials changed, replacing connections")
	t.forgetPool()
}

// renewToken replaces all connections after a token or AWS credentials were renewed. A broker ends
// a connection when the connection's credential expires.
func (t *transport) renewToken(ctx context.Context) {
	if r, ok := t.auth.(login.Renewer); !ok || !r.Renew(ctx) {
		return
	}
	t.log.Debug("credentials renewed, replacing connections")
	t.forgetPool()
}

// dial connects to a bootstrap broker, or to an address that the brokers advertise.
func (t *transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: min(dialTimeout, t.opts.RequestTimeout)}
	raw, err := dialer.DialContext(ctx, network, address)
	if err == nil && t.tls != nil {
		host, _, splitErr := net.SplitHostPort(address)
		if splitErr != nil {
			host = address
		}
		raw, err = t.tls.Handshake(ctx, raw, host)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s%s: %w", address, t.origin(address), err)
	}
	return t.track(raw)
}

// origin returns a note for an address that is not in the configuration, or "".
func (t *transport) origin(address string) string {
	if slices.Contains(t.opts.Addrs, address) {
		return ""
	}
	return " (advertised by the brokers: advertised.listeners)"
}
