// Bench measures the forwarder from the outside, on a control plane of its own: «make
// bench».
//
// It fills a real API server with pods that are as large, and as different from each
// other, as real ones (package pods), and runs the built forwarder beside the floor, which
// is the same watch read and thrown away, and a plain dynamic informer that publishes in
// its handler, which is what others do. Every contender is a process of its own, measured
// by the same means: CPU time and peak memory as the kernel has them, wall time from exec.
// What is compared was measured in one run, contenders in turn, since no machine is the
// same for long.
//
// Parts, by BENCH (default all): fill, sync, latency, rate, live, publish; see the files of
// these names. PODS are the numbers of pods, ROUNDS the rounds of sync (default 3, from 50,000 pods
// on 1), CONTENDERS those of sync (floor informer nats kafka stdout projection
// filter), OUT a file that gets the
// tables as Markdown.
//
// It ends with what has been promised, and exits with 1 if one of the promises is not kept.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// roles are what this binary does in processes of its own: «bench floor ...».
var roles = map[string]func(ctx context.Context, args []string) error{
	"floor":    runFloor,
	"informer": runInformer,
	"nats":     runNATSServer,
}

// errNotKept is the end of a run that went well and shows a promise that is not kept.
var errNotKept = errors.New("not every promise is kept")

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the failures of client-go that matter are ours to tell
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		role, ok := roles[args[0]]
		if !ok {
			return fmt.Errorf("it has no part %q: it is told by the environment, BENCH, PODS, ROUNDS and OUT", args[0])
		}
		return role(ctx, args[1:])
	}
	s, err := readSettings(os.Getenv)
	if err != nil {
		return err
	}
	return bench(ctx, s, os.Stdout)
}
