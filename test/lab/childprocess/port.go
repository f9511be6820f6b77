package childprocess

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sharing is the socket option that lets a server listen on a port beside the
// socket that holds it. The server must set the same.
type Sharing int

const (
	// ReusePort is for a server that can be told to set SO_REUSEPORT. Nothing without
	// that option gets the port while it is held, neither a listener nor an outgoing
	// connection.
	ReusePort Sharing = unix.SO_REUSEPORT
	// ReuseAddr is for a server that sets SO_REUSEADDR and nothing else, as Java
	// does. Nothing that asks for any free port gets this one. Only on Linux does the
	// option let two bind the same port: on other systems the port is not held, it is
	// only a number that was free a moment ago.
	ReuseAddr Sharing = unix.SO_REUSEADDR
)

// A Port is a TCP port of the loopback interface that is ours until it is
// released: a socket that does not listen is bound to it, beside which a server
// does. So it stays while the server is down.
type Port struct {
	Number int
	socket *os.File
}

// HoldPort holds a free port for a server that shares it in this way.
func HoldPort(sharing Sharing) (Port, error) {
	syscall.ForkLock.RLock() // no child may inherit the socket
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return Port{}, fmt.Errorf("hold a port: %w", err)
	}
	p := Port{socket: os.NewFile(uintptr(fd), "port")}
	if err := p.bind(fd, sharing); err != nil {
		p.Release()
		return Port{}, fmt.Errorf("hold a port: %w", err)
	}
	if sharing == ReuseAddr && runtime.GOOS != "linux" {
		p.Release()
	}
	return p, nil
}

func (p *Port) bind(fd int, sharing Sharing) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, int(sharing), 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	p.Number = address.(*unix.SockaddrInet4).Port
	return nil
}

// Release gives the port up; a second time, or that of a port never held, does nothing.
func (p Port) Release() { p.socket.Close() }

// Address is the port as host:port.
func (p Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }
