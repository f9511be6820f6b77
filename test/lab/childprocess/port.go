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

// Sharing is the socket option that lets a server listen on a port that another socket holds. The
// server must set the same option as the holder.
type Sharing int

const (
	// ReusePort is for a server that can set SO_REUSEPORT. While the port is held, no listener or
	// outgoing connection without that option can use it.
	ReusePort Sharing = unix.SO_REUSEPORT
	// ReuseAddr is for a server that sets only SO_REUSEADDR, as Java does. On Linux, the kernel never
	// assigns the held port to a process that asks for any free port. On other systems, the option
	// doesn't let two sockets bind the same port, so HoldPort doesn't hold it and only returns a number
	// that was free a moment ago.
	ReuseAddr Sharing = unix.SO_REUSEADDR
)

// A Port is a TCP port of the loopback interface that is reserved until it is released. A bound socket
// that doesn't listen holds the port, even while its server is down.
type Port struct {
	Number int
	socket *os.File
}

// HoldPort holds a free port for a server that shares it with the given option.
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

// Release releases the port. It has no effect on a released Port or a zero Port.
func (p Port) Release() { p.socket.Close() }

// Address returns the port as host:port.
func (p Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number)) }
