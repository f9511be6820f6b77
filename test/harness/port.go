package harness

import (
	"sync"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// held keeps the ports of FreePort: a port that nothing refers to is released.
var held struct {
	sync.Mutex
	ports []childprocess.Port
}

// FreePort returns a loopback address for a server that is written in Go. Until this process
// ends, nothing that asks for any free port gets this one, not even while the server is down.
func FreePort() (address string, err error) {
	port, err := childprocess.HoldPort(childprocess.ReuseAddr) // which Go's listeners set
	if err != nil {
		return "", err
	}
	held.Lock()
	defer held.Unlock()
	held.ports = append(held.ports, port)
	return port.Address(), nil
}
