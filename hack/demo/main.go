// Demo shows what Kuberelay does, on a control plane of its own: «make demo».
//
// It builds and starts a real control plane, the forwarder with its built-in NATS
// server, or with SINK=kafka a real Kafka broker, and a subscriber; then it changes real objects, act by act (acts.go),
// and shows the events as they arrive. A second subscriber checks them: the demo
// fails if an event does not come, comes twice or out of order, or if after an act
// the state rebuilt from the events is not that of the API server. So it is a test
// as well, of what a user has on the first day.
//
// With ONCE=1 in the environment it ends by itself, otherwise it leaves everything
// running to be tried by hand, until Ctrl-C. Either way, and however it ends,
// nothing of it is left behind but bin/forwarder and the built control plane in
// the user's cache. It needs only Go; for Kafka Java and Maven, too.
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
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the failures of client-go that matter are ours to tell
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(signals, stop) // a second signal ends it at once
	out := newConsole(os.Stdout)
	if err := run(signals, out, os.Getenv("ONCE") != "" && os.Getenv("ONCE") != "0"); err != nil {
		out.failed("%v", err)
		os.Exit(1)
	}
}

var errStopped = errors.New("the demo was stopped before its end")

// run is the whole demo. A signal is its regular end once all acts are done.
func run(signals context.Context, out *console, once bool) (err error) {
	b, err := chooseBus(os.Getenv("SINK"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(signals)
	defer cancel(nil)
	defer endWithParent(cancel)()

	s := &stage{console: out, bus: b, fail: cancel}
	if out.terminal && !once {
		s.pause = 2 * time.Second
	}
	defer func() {
		switch {
		case err == nil:
		case signals.Err() != nil:
			err = errStopped
		default:
			if cause := context.Cause(ctx); cause != nil {
				err = cause // that a process ended explains what did not come
			}
			err = fmt.Errorf("the demo failed: %w", err)
			s.showLogs()
		}
		out.say("stop everything and remove it")
		err = errors.Join(err, s.strike())
	}()
	if err := s.set(ctx); err != nil {
		return err
	}
	start := time.Now()
	for _, a := range acts {
		if err := s.perform(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.say, err)
		}
	}
	s.subscriber.summary(out, time.Since(start))
	if once {
		return nil
	}
	s.handOver()
	<-ctx.Done()
	if signals.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

var errParentGone = errors.New("the process that started the demo has ended")

// endWithParent ends the demo when make or go run was killed, who would not pass
// that on. The function that it returns stops the watch.
func endWithParent(cancel context.CancelCauseFunc) (stop func()) {
	parent, done, ended := os.Getppid(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				if os.Getppid() != parent {
					cancel(errParentGone)
					return
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}
