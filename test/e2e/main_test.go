// Package e2e tests the forwarder as its users run it: the built binary, a real
// API server with its controllers, a real NATS server, and a subscriber that
// reads the bus with nothing but a NATS client.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/controlplane"
	"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/test/harness"
)

// limit bounds every wait. It is generous: a test that passes does not need it.
const limit = 90 * time.Second

var (
	cluster = controlplanetest.Shared{Options: controlplane.Options{
		ControllerManager: true,
		Users:             map[string][]string{"little": nil},
	}}
	binary string // the forwarder, built with the race detector if the test is
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
