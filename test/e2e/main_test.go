// Package e2e tests the forwarder as its users run it: the built binary, a real
// API server with its controllers, a real NATS server, and a subscriber that
// reads the bus with nothing but a NATS client.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/controlplane"
	"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
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
		err = build(binary)
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

func build(to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	args := []string{"build", "-o", to}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/kuberelay/kuberelay/cmd/forwarder")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the forwarder: %w\n%s", err, out)
	}
	return nil
}
