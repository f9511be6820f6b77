package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestFirstResponse verifies that a connection rejects the first response of a server that is not a
// Kafka broker. It accepts the response of a broker, in one part or several, and a TLS alert.
func TestFirstResponse(t *testing.T) {
	for name, c := range map[string]struct {
		parts []string
		want  error
	}{
		"web server":    {[]string{"HTTP/1.1 400 Bad Request\r\n"}, errNotKafka},
		"NATS server":   {[]string{`INFO {"server_id":"N"}`}, errNotKafka},
		"broker":        {[]string{"\x00\x00\x00\x0a\x00\x00\x00\x01"}, nil},
		"several parts": {[]string{"\x00\x00\x00", "\x0a\x00\x00\x00\x01"}, nil},
		"TLS alert":     {[]string{"\x15\x03\x03\x00\x02\x02\x46"}, nil},
	} {
		server, client := net.Pipe()
		go func() {
			for _, part := range c.parts {
				_, _ = server.Write([]byte(part))
			}
		}()
		conn := &conn{Conn: client, t: &transport{}}
		for _, part := range c.parts {
			n, err := conn.Read(make([]byte, 4096))
			if !errors.Is(err, c.want) || err == nil && n != len(part) {
				t.Errorf("%s: got %d bytes and %v, want %v", name, n, err, c.want)
			}
		}
		server.Close()
	}
}

// TestAnotherServer verifies that the error about a server that is not a Kafka broker says so.
func TestAnotherServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("INFO {" + strings.Repeat(" ", 100) + "}\r\n"))
		}
	}()
	poll.Try(t, "the error says so", func(ctx context.Context) error { // a busy machine can respond after the timeout
		c := newClient(t, l.Addr().String(), func(o *Options) { o.RequestTimeout = 2 * time.Second })
		_, err := c.Brokers(ctx)
		if err == nil || !strings.Contains(err.Error(), "check the host and the port") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
