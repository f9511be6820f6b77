// Binaries prepares the programs that the tests need. It builds the control plane and the previous NATS
// server, downloads the Kafka brokers, and prints the progress. It skips programs that are already in the
// cache. If you don't run it, the tests prepare the programs themselves, but "go test" then prints nothing
// for minutes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "binaries:", err)
		os.Exit(1) //nolint:gocritic // the process ends, so stop is not needed
	}
}

func run(ctx context.Context) error {
	paths, err := controlplane.Binaries(ctx, controlplane.Options{ControllerManager: true, Kwok: true, Aggregated: true, Log: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "control plane:", paths.APIServer)
	nats, err := controlplane.FormerNATSServer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "NATS server of the previous release:", nats)
	former, err := kafkabroker.FetchFormer(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Kafka broker of the previous release:", former.Jars)
	installed, err := kafkabroker.Fetch(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Kafka broker:", installed.Jars)
	return nil
}
