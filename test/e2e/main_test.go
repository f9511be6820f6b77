// Package e2e tests the forwarder as users run it, with the built binary, a real API server with its
// controllers, and a real bus. The subscribers in the tests use only a client of the bus.
package e2e

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

// limit bounds every wait. It is generous, because only a failing test reaches it. On two busy
// cores, the longest waits take 16 s, for the first sync of 20,000 objects, and 26 s, for a Kafka
// broker that is killed under load. A machine can be ten times slower.
const limit = 5 * time.Minute

// settle is the time for which verify waits for messages in flight when it must find no difference.
// It is shorter than limit, so that verify reports a difference before the test gives up.
const settle = "--settle=1m"

var (
	cluster = controlplanetest.Shared{Options: controlplane.Options{
		ControllerManager: true,
		Users:             map[string][]string{"little": nil},
		APIServerFlags:    []string{"--etcd-compaction-interval=0"}, // tests list old versions
	}}
	binary string // built with the race detector if the test is built with it
)

func TestMain(m *testing.M) {
	natstest.RunIfChild()
	dir, err := os.MkdirTemp("", "kuberelay-e2e-")
	if err == nil {
		binary = filepath.Join(dir, "forwarder")
		err = build()
	}
	code := 1
	if err == nil {
		code = cluster.Run(m)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func build() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return harness.Build(ctx, binary)
}
