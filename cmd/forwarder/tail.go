package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
)

func newTailCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tail",
		Short: "Print the events on the bus as they come",
		Args:  usage(cobra.NoArgs),
		RunE:  configured(config.Subscribing, runTail),
	}
}

// runTail blocks until ctx ends or the bus cannot be read.
func runTail(_ context.Context, _ config.Config, _ *slog.Logger) error {
	return errors.New("tail: not wired")
}
