// Demo shows Kuberelay at work on its own control plane. Run it with "make demo".
//
// It starts a real control plane, the forwarder with its built-in NATS server (or a real Kafka
// broker with SINK=kafka), and a subscriber. Then it changes real objects, act by act (acts.go),
// and shows the events as they arrive. A second subscriber checks the events. The demo fails if an event
// is lost, repeated or out of order. It also fails if, after an act, the state that the events describe
// differs from the state of the API server.
//
// With ONCE=1, the demo exits after the last act. Otherwise it keeps everything running until Ctrl-C. At
// the end, it removes everything that it created except bin/ and the downloads and builds in the user's
// cache.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go also returns its errors
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(signals, stop) // a second signal ends the process at once
	out := newConsole(os.Stdout)
	bin, err := filepath.Abs(filepath.Join("bin", "forwarder"))
	if err == nil {
		err = run(signals, out, bin, os.Getenv("SINK"), os.Getenv("ONCE") != "" && os.Getenv("ONCE") != "0")
	}
	if err != nil {
		out.println("\n" + out.paint(boldRed, "✗ "+err.Error()))
		os.Exit(1)
	}
}

// run runs the whole demo with the forwarder bin. After the last act, it runs until a signal, which is not an
// error.
func run(signals context.Context, out *console, bin, sink string, once bool) (err error) {
	ctx, cancel := context.WithCancelCause(signals)
	defer cancel(nil)
	s := &stage{console: out, fail: cancel, bin: bin}
	defer func() {
		switch {
		case err == nil:
		case signals.Err() != nil:
			err = errors.New("the demo was stopped before its end")
		default:
			if cause := context.Cause(ctx); cause != nil {
				err = cause // for example, a process ended, so its events are missing
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
			return fmt.Errorf("%s: %w", s.words(a.say), err)
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
