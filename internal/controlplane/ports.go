package controlplane

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a TCP port of the loopback interface that is ours until it is
// released: a socket that does not listen is bound to it. A component listens
// on it beside that socket, with SO_REUSEPORT. While it is down, nothing else
// gets the port, neither a listener nor an outgoing connection, which is what
// makes a restart on the same port certain.
type port struct {
	number int
	socket *os.File
}

func holdPort() (port, error) {
	syscall.ForkLock.RLock() // no child may inherit the socket
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return port{}, fmt.Errorf("hold a port: %w", err)
	}
	p := port{socket: os.NewFile(uintptr(fd), "port")}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		p.release()
		return port{}, fmt.Errorf("hold a port: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		p.release()
		return port{}, fmt.Errorf("hold a port: %w", err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		p.release()
		return port{}, fmt.Errorf("hold a port: %w", err)
	}
	p.number = address.(*unix.SockaddrInet4).Port
	return p, nil
}

// release gives the port up; that of a port never held does nothing.
func (p port) release() { p.socket.Close() }

// url is the port as a URL of the given scheme.
func (p port) url(scheme string) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, p.number) }
