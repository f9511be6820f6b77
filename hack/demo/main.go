// Demo shows Kuberelay at work on a control plane of its own: "make demo".
//
// It starts a real control plane, the forwarder with its built-in NATS server (or a real Kafka
// broker with SINK=kafka), and a subscriber. Then it changes real objects, act by act (acts.go),
// and shows the events as they arrive. A second subscriber checks them. The demo fails if an event
// is lost, repeated or out of order, or if the state that the events describe differs from the API
// server's after an act.
//
// With ONCE=1 it ends by itself. Otherwise it keeps everything running until Ctrl-C. It removes
// everything that it made except bin/ and the control plane in the user's cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go also returns its errors
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(signals, stop) // a second signal ends the process at once
	out := newConsole(os.Stdout)
	if err := run(signals, out, os.Getenv("SINK"), os.Getenv("ONCE") != "" && os.Getenv("ONCE") != "0"); err != nil {
		out.println("\n" + out.paint(boldRed, "✗ "+err.Error()))
		os.Exit(1)
	}
}

// run runs the whole demo. After the last act, a signal is the regular end.
func run(signals context.Context, out *console, sink string, once bool) (err error) {
	ctx, cancel := context.WithCancelCause(signals)
	defer cancel(nil)
	s := &stage{console: out, fail: cancel}
	defer func() {
		switch {
		case err == nil:
		case signals.Err() != nil:
			err = errors.New("the demo was stopped before its end")
		default:
			if cause := context.Cause(ctx); cause != nil {
				err = cause // if a process ended, that is the reason for the missing events
			}
			err = fmt.Errorf("the demo failed: %w", err)
			s.showLogs()
		}
		out.say("stop everything and remove it")
		err = errors.Join(err, s.close())
	}()
	if err := s.start(ctx, sink); err != nil {
		return err
	}
	start := time.Now()
	for _, a := range acts {
		if out.terminal && !once {
			wait(ctx, 2*time.Second) // time to read
		}
		if err := s.perform(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.say, err)
		}
	}
	if err := s.summary(time.Since(start)); err != nil || once {
		return err
	}
	s.handOver()
	<-ctx.Done()
	if signals.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// wait waits for a time or until ctx ends.
func wait(ctx context.Context, length time.Duration) {
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
}
