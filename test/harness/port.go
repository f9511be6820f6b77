package harness

import (
	"sync"

	"github.com/kuberelay/kuberelay/test/lab/childprocess"
)

// held keeps the ports of FreePort in use. The garbage collector would close the socket of an unreferenced
// port.
var held struct {
	sync.Mutex
	ports []childprocess.Port
}

// FreePort returns a loopback address for a server that is written in Go. The port is held until
// this process ends. Until then, no other process that asks for any free port receives it, even
// while the server is down.
func FreePort() (address string, err error) {
	port, err := childprocess.HoldPort(childprocess.ReuseAddr) // Go's listeners set SO_REUSEADDR
	if err != nil {
		return "", err
	}
	held.Lock()
	defer held.Unlock()
	held.ports = append(held.ports, port)
	return port.Address(), nil
}
