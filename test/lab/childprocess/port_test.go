package childprocess_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// listen listens like a server that sets only these socket options, besides Go's own.
func listen(ctx context.Context, address string, options map[int]int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var err error
		controlled := conn.Control(func(fd uintptr) {
			for option, value := range options {
				err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, value))
			}
		})
		return errors.Join(controlled, err)
	}}
	return config.Listen(ctx, "tcp", address)
}

func TestHoldPort(t *testing.T) {
	for _, test := range []struct {
		name    string
		sharing childprocess.Sharing
		others  map[int]int // options that don't let another server share the port; Go always sets SO_REUSEADDR
	}{
		{"SO_REUSEPORT", childprocess.ReusePort, nil},
		{"SO_REUSEADDR", childprocess.ReuseAddr, map[int]int{syscall.SO_REUSEADDR: 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.sharing == childprocess.ReuseAddr && runtime.GOOS != "linux" {
				t.Skip("the port is not held")
			}
			port, err := childprocess.HoldPort(test.sharing)
			if err != nil {
				t.Fatal(err)
			}
			defer port.Release()
			for range 2 { // the server can listen again
				server, err := listen(t.Context(), port.Address(), map[int]int{int(test.sharing): 1})
				if err != nil {
					t.Fatalf("the server the port is held for: %v", err)
				}
				server.Close()
			}
			if other, err := listen(t.Context(), port.Address(), test.others); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("another: got %v and error %v, want %v", other, err, syscall.EADDRINUSE)
			}
			port.Release()
			port.Release()
			free, err := listen(t.Context(), port.Address(), test.others)
			if err != nil {
				t.Fatalf("a port that was released: %v", err)
			}
			free.Close()
		})
	}
	childprocess.Port{}.Release()
}
