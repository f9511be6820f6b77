package natsserver

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

// TestMaxConnections verifies that the number of connections is limited, and that readers can't
// displace the forwarder's connection, or prevent a new one.
func TestMaxConnections(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	js := forwarder(t, s)
	accepted := func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, "CONNECT {}\r\nPING\r\n") // PONG means that the server accepted the connection
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
	publish(t, inProcess(t, s), "kuberelay.prod.core.pods.default.web", "1")
	publish(t, js, "kuberelay.prod.core.pods.default.web", "2")
}
