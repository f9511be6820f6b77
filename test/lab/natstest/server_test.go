package natstest_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestPortIsKept verifies that no outgoing connection can take the port of a stopped server. Without a
// held port, any process could take the ephemeral port, and the server couldn't start again.
func TestPortIsKept(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // other systems can't hold a port
	}
	s, other := natstest.Start(t), natstest.Start(t)
	s.Stop()
	local, err := net.ResolveTCPAddr("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{LocalAddr: local}).DialContext(t.Context(), "tcp", other.Addr())
	if err == nil {
		defer conn.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("an outgoing connection from the server's port: got %v, want %v", err, syscall.EADDRINUSE)
	}
	s.Restart()
}
