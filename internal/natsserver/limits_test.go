package natsserver

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// TestMaxConnections: connections that readers pile up are bounded, and the forwarder keeps
// its own.
func TestMaxConnections(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	js := forwarder(t, s)
	accepted := func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, "CONNECT {}\r\nPING\r\n") // the answer says whether it arrived
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PONG" {
				return true
			}
		}
		return false
	}
	made := 1 // the forwarder's
	for made <= maxConnections && accepted() {
		made++
	}
	if made != maxConnections {
		t.Errorf("there are %d connections, want %d at most", made, maxConnections)
	}
	publish(t, js, "kuberelay.prod.core.pods.default.web", "1")
}
