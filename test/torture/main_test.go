// Package torture runs the forwarder under a random workload with random faults. Then it checks
// that the bus has converged to the cluster and that every event was in order.
//
// A seed decides the settings of the forwarder, the changes of the cluster, the faults, and when
// they begin and end. It doesn't decide the timing of processes on a busy machine, so a repeated
// seed has the same plan, but not the same timing.
//
// Every component runs as a real process: etcd, the API server, the controller manager, a NATS
// server or a Kafka broker, and the forwarder. The forwarder is built with the tag failpoints. TCP
// proxies between the forwarder and the servers cause the network faults. The workload, the checks,
// and the faults that don't concern the bus are the same for every bus.
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

// reader is the Kubernetes user of the forwarder. A fault can revoke its permissions.
const reader = "forwarder"

var (
	cluster = controlplanetest.Shared{Options: controlplane.Options{
		ControllerManager: true, // deletes the content of namespaces
		Aggregated:        true,
		Users:             map[string][]string{reader: nil},
	}}
	forwarder string // the binary without a planted bug
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
