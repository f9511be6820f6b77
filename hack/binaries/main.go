// Binaries builds the control plane and fetches the Kafka broker that the tests
// run against, where they are not there yet, and says how it goes. Without it
// the first test would do the same, but «go test» shows nothing of it for minutes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kuberelay/kuberelay/internal/controlplane"
	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "binaries:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

func run(ctx context.Context) error {
	paths, err := controlplane.Binaries(ctx, controlplane.Options{ControllerManager: true, Kwok: true, Log: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "control plane:", paths.APIServer)
	installed, err := kafkabroker.Fetch(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Kafka broker:", installed.Jars)
	return nil
}
