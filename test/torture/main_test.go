// Package torture runs the forwarder under a random workload and random faults,
// and asks afterwards whether the bus has become an exact copy of the cluster and
// whether every event on its way was in order.
//
// A seed decides everything that is decided: the forwarder's settings, the
// changes of the cluster, the faults and when they begin and end. It does not
// decide what several processes make of it on a busy machine, so a failing seed
// is run again with the same plan, not with the same timing.
//
// What runs is real: etcd, API server and controller manager, a NATS server or a
// Kafka broker, and the forwarder as processes, the last built with the tag
// failpoints. Between the forwarder and the servers are TCP proxies, which break what
// a test cannot ask a server to break. The workload, the faults that have nothing to do
// with the bus and the judgement are the same over every bus.
package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// reader is the user that the forwarder is. What it may read can be taken away.
const reader = "forwarder"

var (
	cluster = controlplanetest.Shared{Options: controlplane.Options{
		ControllerManager: true, // removes namespaces
		Aggregated:        true,
		Users:             map[string][]string{reader: nil},
	}}
	forwarder string // the forwarder without a planted bug
)

func TestMain(m *testing.M) {
	natstest.RunIfChild()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kuberelay-torture-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	forwarder = filepath.Join(dir, "forwarder")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := harness.Build(ctx, forwarder, failpoints); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cluster.Run(m)
}
