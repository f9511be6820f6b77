package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

// conn is a connection that transport.close can close.
type conn struct {
	net.Conn

	t            *transport
	ignoredClear bool // SetDeadline has ignored the call that clears the deadline before the SASL login
	responded    bool // the first bytes have arrived
}

func (t *transport) track(raw net.Conn) (net.Conn, error) {
	c := &conn{Conn: raw, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		raw.Close()
		return nil, failure.ErrClosed
	}
	t.conns[c] = struct{}{}
	return c, nil
}

// maxFirstResponse is the maximum size in bytes of the first response, which lists the supported
// API versions. Such a response has 6 bytes for each of about a hundred requests.
const maxFirstResponse = 1 << 20

// tlsAlert is the first byte of a TLS alert. kafka-go itself explains an alert.
const tlsAlert = 0x15

var errNotKafka = errors.New("the response is not from a Kafka broker")

// Read implements [net.Conn]. It rejects the response of a server that is not a Kafka broker, such as a web
// server. kafka-go would take the first bytes for a size, and allocate gigabytes.
//
// After the first response, every error means that the connection broke. In particular, a TLS alert is then
// no rejected handshake, so it does not prove that the broker has ignored the request.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.responded && err != nil && failure.KindOf(err) != failure.Retry {
		err = fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, err) //nolint:errorlint // the kind of err does not apply
	}
	isFirst := !c.responded
	c.responded = c.responded || n > 0
	if isFirst && n >= 4 && b[0] != tlsAlert && binary.BigEndian.Uint32(b) > maxFirstResponse {
		c.t.notKafka.Store(true)
		return 0, errNotKafka
	}
	return n, err
}

// SetDeadline implements [net.Conn]. It ignores the first call that clears the deadline. kafka-go sets
// a deadline when it connects, and clears it before the SASL login. Without a deadline, a login that the
// broker does not finish leaks the connection and its goroutine after the caller gives up, and each
// retry leaks another one. So the deadline stays until the first request replaces it. Every request has
// a deadline.
func (c *conn) SetDeadline(at time.Time) error {
	if at.IsZero() && !c.ignoredClear {
		c.ignoredClear = true
		return nil
	}
	return c.Conn.SetDeadline(at)
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}
