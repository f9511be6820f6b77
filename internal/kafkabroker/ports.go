package kafkabroker

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a TCP port of the loopback interface that is ours until it is
// released: a socket that does not listen is bound to it. On Linux the broker
// listens on it beside that socket, as Java sets SO_REUSEADDR, too. While the
// broker is down, nothing that asks for any free port gets this one, neither a
// listener nor an outgoing connection. Other systems let nobody listen beside
// that socket; there the port is only a number that was free a moment ago.
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
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
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
	if runtime.GOOS != "linux" {
		p.release()
	}
	return p, nil
}

// release gives the port up; a second time, or that of a port never held, does nothing.
func (p port) release() { p.socket.Close() }

// address is the port as host:port.
func (p port) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// holdPorts holds a port for each of the listeners.
func holdPorts(listeners []Listener) (map[Listener]port, error) {
	ports := map[Listener]port{}
	for _, l := range listeners {
		p, err := holdPort()
		if err != nil {
			releasePorts(ports)
			return nil, err
		}
		ports[l] = p
	}
	return ports, nil
}

func releasePorts(ports map[Listener]port) {
	for _, p := range ports {
		p.release()
	}
}
