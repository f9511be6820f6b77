// Command natsserver runs a NATS server for tests of upgrades. Its release is the one before the release
// that the project uses. The only argument is the configuration file. The command prints "ready" when the
// server accepts connections, and ends at the end of its standard input.
package main

import (
	"fmt"
	"io"
	"os"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string) error {
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	opts.NoLog = true
	// All servers of a cluster must use the same shortened times; see test/lab/natstest.
	for _, d := range []*time.Duration{&minElectionTimeout, &maxElectionTimeout, &hbInterval, &lostQuorumInterval, &lostQuorumCheck} {
		*d /= 4
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	ns.Start()
	if !ns.ReadyForConnections(time.Minute) {
		return fmt.Errorf("not ready")
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration
