package harness

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range from which FreePort draws lies below the one that Linux and macOS take
// the ports of outgoing connections from: those could take a server's while it is
// down.
const (
	lowestPort  = 20_000
	highestPort = 32_000
)

// FreePort is a loopback address that nobody listens on, and that no outgoing
// connection will take.
func FreePort() (address string, err error) {
	for range 100 {
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort)))
		l, lerr := net.Listen("tcp", address)
		if lerr == nil {
			return address, l.Close()
		}
		err = lerr
	}
	return "", errors.Join(errors.New("no port is free"), err)
}
