package harness

import (
	"sync"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// held keeps the ports of FreePort: a port without a reference is released.
var held struct {
	sync.Mutex
	ports []childprocess.Port
}

// FreePort returns a loopback address for a server that is written in Go. Until this process ends,
// nobody else who asks for a free port gets this one, not even while the server is down.
func FreePort() (address string, err error) {
	port, err := childprocess.HoldPort(childprocess.ReuseAddr) // Go's listeners set it
	if err != nil {
		return "", err
	}
	held.Lock()
	defer held.Unlock()
	held.ports = append(held.ports, port)
	return port.Address(), nil
}
