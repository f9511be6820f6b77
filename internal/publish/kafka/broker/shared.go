package broker

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/segmentio/kafka-go"
)

// Shared are connections that several Clients use, in place of some for each. They have the same
// brokers, credentials and certificates. A connection has one request at a time, so a request that
// a broker does not answer delays no other. The first Client that needs them makes them, and the
// last one closes them. The zero value is ready for use.
type Shared struct {
	Logger *slog.Logger // of the connections; that of the first Client if nil

	mu        sync.Mutex
	transport *transport
}

// join returns the connections for another Client.
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

// join adds a Client. It returns false if the connections are closed.
func (t *transport) join() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.clients++
	}
	return !t.closed
}

// leave removes a Client. The last one closes the connections.
func (t *transport) leave() {
	t.mu.Lock()
	t.clients--
	last := t.clients == 0
	t.closed = t.closed || last
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
	t.inner.CloseIdleConnections()
	t.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
	t.workers.Wait()
}

// requests are the requests of one Client. They end with it, also on connections of others.
type requests struct {
	transport *transport
	closing   context.Context
}

var _ kafka.RoundTripper = requests{}

// RoundTrip sends one request.
func (r requests) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if r.closing.Err() != nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	return r.transport.RoundTrip(ctx, addr, req)
}
