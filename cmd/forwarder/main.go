// Forwarder keeps a message bus an exact, ordered, always current copy of
// Kubernetes resources.
//
// It is set by environment variables only (docs/configuration.md), which
// «forwarder --help» lists. Its exit codes are:
//
//	0  it ended as asked, also by SIGTERM or SIGINT
//	1  it failed while running
//	2  the command line or the configuration is wrong; waiting does not cure it
//
// A second SIGTERM or SIGINT ends it at once, with 1. Nothing is lost by that:
// what the bus has not acknowledged is found again at the next start.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(untilSignal(os.Exit), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal gives a context that SIGTERM or SIGINT ends. The second signal calls
// exit: to restore the default action would not be enough, because the kernel
// ignores that for process 1 of a container.
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

// run is the whole command. It returns the exit code, after ctx has ended or the
// command is done.
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
	fmt.Fprintf(stderr, "forwarder: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError marks what only another command line or configuration can cure.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
