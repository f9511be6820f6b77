// Forwarder keeps a message bus an exact, ordered, always current copy of
// Kubernetes resources.
//
// Environment variables configure it (docs/configuration.md); "forwarder help environment" lists them. Its
// exit codes are:
//
//	0  it stopped as asked, including by SIGTERM or SIGINT
//	1  it failed while running
//	2  the command line or the configuration is wrong; a restart does not help
//
// A second SIGTERM or SIGINT stops it at once, with exit code 1. Nothing is lost: the next start
// finds what the bus has not acknowledged.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/relay"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(untilSignal(os.Exit), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal returns a context that SIGTERM or SIGINT cancels. The second signal calls exit:
// restoring the default action is not enough, because the kernel ignores it for process 1 of a
// container.
func untilSignal(exit func(code int)) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() { // until the process ends
		<-signals
		cancel()
		<-signals
		exit(exitFailure)
	}()
	return ctx
}

// run runs the command until it is done or ctx is canceled, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, newRootCommand(), args, stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(stderr, "forwarder: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	var usage *usageError
	var wrong *relay.ConfigError
	if errors.As(err, &usage) || errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailure
}

// usageError is an error that only another command line or configuration fixes. A
// [relay.ConfigError] counts as one.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitCode ends the process with a code after a command has printed why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// version and commit are set by the linker (Makefile). Without them, as with go install, the build
// information is used.
var version, commit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and platform",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

func versionLine() string {
	v, c := builtFrom()
	return fmt.Sprintf("forwarder %s (commit %s, %s, %s/%s)", v, c, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns the version and the commit.
func builtFrom() (v, c string) {
	v, c = version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				c = cmp.Or(c, s.Value)
			}
		}
	}
	return cmp.Or(v, "(devel)"), cmp.Or(c, "unknown")
}
