package broker

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// Shared holds connections that several Clients use together, so that each Client needs none of its
// own. All of these Clients must use the same brokers, credentials, and certificates. A connection
// carries one request at a time, so a request without a response delays no other request. [New]
// sets up the connections for the first Client, and [Client.Close] closes them with the last
// Client. The zero value is ready for use.
type Shared struct {
	Logger *slog.Logger // logger of the connections; if nil, the first Client's logger

	mu        sync.Mutex
	transport *transport
}

// join adds a Client and returns the transport that it shares. It creates the transport if none is open.
func (s *Shared) join(opts Options) (*transport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport != nil && s.transport.join() {
		return s.transport, nil
	}
	opts.Logger = cmp.Or(s.Logger, opts.Logger)
	t, err := newTransport(opts)
	if err != nil {
		return nil, err
	}
	t.join()
	s.transport = t
	return t, nil
}

// join adds a Client unless the transport is closed, and reports whether it added the Client.
func (t *transport) join() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed.Load() {
		t.clients++
	}
	return !t.closed.Load()
}

// leave removes a Client. When the last Client leaves, the connections close.
func (t *transport) leave() {
	t.mu.Lock()
	t.clients--
	last := t.clients == 0
	if last {
		t.closed.Store(true)
	}
	t.mu.Unlock()
	if last {
		t.close()
	}
}

// close closes all connections, which ends the requests in progress.
func (t *transport) close() {
	t.stop()
	t.mu.Lock()
	conns := t.conns
	t.conns = make(map[*conn]struct{})
	t.pool.Load().CloseIdleConnections()
	t.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
	t.workers.Wait()
}

// requests sends the requests of one Client. When the Client closes, its requests end, even if other
// Clients still use the connections.
type requests struct {
	transport *transport
	closing   context.Context
}

var _ kafka.RoundTripper = requests{}

// RoundTrip sends one request.
func (r requests) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if r.closing.Err() != nil {
		return nil, failure.ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	return r.transport.RoundTrip(ctx, addr, req)
}
