package broker

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// breakable is a listener whose connections write text without encryption instead of the next response, if
// broken is set.
type breakable struct {
	net.Listener

	broken *atomic.Bool
}

func (l breakable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return breakableConn{c, l.broken}, err
}

type breakableConn struct {
	net.Conn

	broken *atomic.Bool
}

func (c breakableConn) Write(b []byte) (int, error) {
	if !c.broken.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write([]byte("HTTP/1.1 408 Request Timeout\r\n\r\n")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// TestATLSConnectionThatBreaks verifies that a batch counts as possibly stored if its TLS connection breaks
// before the response, for example because a proxy answers without encryption. In an earlier version, it
// counted as not stored. So the next batch reused its sequence numbers, and the broker acknowledged that
// batch as a duplicate without storing it.
func TestATLSConnectionThatBreaks(t *testing.T) {
	ca := tlstest.NewCA(t)
	certificate, _, _ := ca.Issue("broker")
	var broken atomic.Bool
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, faulty), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return tls.NewListener(breakable{l, &broken}, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := newClient(t, cluster.ListenAddrs()[0], func(o *Options) { o.TLS, o.CAFile = true, ca.File })
	put(t, c, faulty, 0, record("a", "1"))
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		broken.Store(true)
		return nil, nil, false
	})
	_, err = c.Produce(within(t), faulty, 0, one(t))
	wantError(t, err, failure.Retry)
	if o, err := c.Offsets(within(t), faulty); err != nil || o.End[0] != 2 {
		t.Errorf("got %+v, %v, want two records", o, err)
	}
}

// TestAnAlertAfterAResponse verifies that a TLS alert means a rejected handshake only before the first
// response.
func TestAnAlertAfterAResponse(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: tls.AlertError(80)}
	for _, responded := range []bool{false, true} {
		c := &conn{Conn: failing{err: alert}, t: &transport{}, responded: responded}
		_, err := c.Read(make([]byte, 10))
		if kind := failure.KindOf(err); errors.Is(err, alert) == responded || (kind == failure.Retry) != responded {
			t.Errorf("after a response %t: got kind %d of %v", responded, kind, err)
		}
	}
}

// failing is a connection whose reads fail.
type failing struct {
	net.Conn

	err error
}

func (f failing) Read([]byte) (int, error) { return 0, f.err }
