package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/config"
)

func newRootCommand() *cobra.Command {
	runCommand := newRunCommand()
	root := &cobra.Command{
		Use:   "forwarder",
		Short: "Keep a message bus an exact, always current copy of Kubernetes resources",
		Long: `Forwarder watches Kubernetes resources and keeps a message bus, NATS JetStream or
Kafka, an exact, ordered, always current copy of them, as CloudEvents.

Without a command it does what 'forwarder run' does. It is set by environment
variables, listed below. Exit codes: 0 ended as asked, 1 failed while running,
2 wrong command line or configuration.`,
		Args:              usage(cobra.NoArgs),
		RunE:              runCommand.RunE,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(runCommand, newTailCommand(), newVerifyCommand(), newResourcesCommand(), newConfigCommand(), newVersionCommand())
	addVariables(root, root, runCommand)
	return root
}

// usage makes what a check of arguments says a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
		}
		return nil
	}
}

// loadConfig reads the environment and says where to read on if that fails.
func loadConfig(need config.Need) (config.Config, error) {
	cfg, err := config.Load(need, contentChecks()...)
	if err != nil {
		return config.Config{}, &usageError{fmt.Errorf("the configuration is wrong:\n%w\n'forwarder --help' lists every variable", err)}
	}
	return cfg, nil
}

// klogOnce: client-go's logger is one for the process, and may be read by another
// command's clients where tests run several.
var klogOnce sync.Once

// configured makes a command of a function that needs configuration and log. What
// client-go logs goes to the same log.
func configured(need config.Need, do func(context.Context, config.Config, *slog.Logger) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(need)
		if err != nil {
			return err
		}
		log, err := newLogger(cfg.Operations, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		klogOnce.Do(func() { klog.SetSlogLogger(log) })
		return do(cmd.Context(), cfg, log)
	}
}
