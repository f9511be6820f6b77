package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/controlplane"
)

const (
	// patience is how long anything may take that takes a second or two, on a
	// machine that is busy with other things.
	patience = 90 * time.Second
	poll     = 100 * time.Millisecond
)

// stage is all that runs for the demo.
type stage struct {
	console *console
	bus     bus
	fail    func(error)   // ends the demo
	pause   time.Duration // before each act, for people to read on

	root     string // of the source
	dir      string // for whatever files are needed, removed at the end
	children *children
	cp       *controlplane.ControlPlane
	cluster  *cluster
	kubelet  func() // stops it

	metricsURL      string
	env             []string // of the forwarder
	forwarder, tail *child
	forwarderLog    *os.File
	tailed          atomic.Int64 // lines
	subscriber      *subscriber
}

// set builds and starts all that is there from the first act on.
func (s *stage) set(ctx context.Context) error {
	if err := s.build(ctx); err != nil {
		return err
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	if err := s.startControlPlane(ctx); err != nil {
		return err
	}
	if err := s.bus.start(ctx, s); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	return s.startTail()
}

func (s *stage) build(ctx context.Context) error {
	s.console.say("build the forwarder", "go build -o bin/forwarder ./cmd/forwarder")
	start := time.Now()
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the source: %w", err)
	}
	s.root = filepath.Dir(string(bytes.TrimSpace(gomod)))
	// The version goes in as with «make build», since this replaces its binary. With
	// the other flags of it all would be compiled anew that this command has in
	// common with the forwarder.
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", os.Getenv("LDFLAGS"), "-o", "bin/forwarder", "./cmd/forwarder")
	build.Dir = s.root
	output := s.console.notes()
	build.Stdout, build.Stderr = output, output
	if err := build.Run(); err != nil {
		return errors.Join(fmt.Errorf("build the forwarder: %w", err), ctx.Err())
	}
	s.console.done("built in %s", since(start))
	return nil
}

func (s *stage) makeDir() (err error) {
	if s.dir, err = os.MkdirTemp("", "kuberelay-demo-"); err != nil {
		return err
	}
	if s.children, err = newChildren(s.dir); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	return nil
}

func (s *stage) startControlPlane(ctx context.Context) error {
	s.console.say("start a real control plane: etcd, kube-apiserver, kube-controller-manager")
	s.console.note("the first time they are compiled from their Go modules: that takes minutes, once")
	start := time.Now()
	var err error
	s.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: s.dir, ControllerManager: true, Log: s.console.notes()})
	if err != nil {
		return err
	}
	config := s.cp.Config()
	if s.cluster, err = newCluster(config); err != nil {
		return err
	}
	s.startKubelet(ctx, s.cluster.client)
	s.console.done("ready after %s at %s", since(start), config.Host)
	s.console.note("it has no machines: the demo plays the kubelet and says of every Pod that it runs")
	return nil
}

func (s *stage) startKubelet(ctx context.Context, client dynamic.Interface) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { pretendKubelet(ctx, client) })
	s.kubelet = func() { cancel(); running.Wait() }
}

// configure sets the environment of the forwarder, from which the settings that
// the user has for another one are left out.
func (s *stage) configure() error {
	addresses, err := freeAddresses(1)
	if err != nil {
		return err
	}
	s.metricsURL = "http://" + addresses[0] + "/metrics"
	s.env = append(s.cleanEnv(),
		"KUBECONFIG="+s.cp.Kubeconfig(),
		"KUBERELAY_RESOURCES="+watched,
		"KUBERELAY_LABEL_SELECTOR="+watchedLabels,
		"KUBERELAY_LISTEN_ADDR="+addresses[0],
		"KUBERELAY_DATA_DIR="+filepath.Join(s.dir, "data"),
		"KUBERELAY_LOG_FORMAT=text",
	)
	s.env = append(s.env, s.bus.settings()...)
	s.forwarderLog, err = os.Create(filepath.Join(s.dir, "forwarder.log"))
	return err
}

func (s *stage) cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBERELAY_") })
}

// freeAddresses are free at this moment; they stay the same when the forwarder is
// started again.
func freeAddresses(n int) (addresses []string, err error) {
	var listeners []net.Listener // all at once, so that no two are the same
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func (s *stage) bin() string { return filepath.Join(s.root, "bin", "forwarder") }

// startTail starts the subscriber that is shown. It waits for the bus.
func (s *stage) startTail() (err error) {
	s.console.say("subscribe; the lines with a bar are what it prints", "bin/forwarder tail --from-start")
	show := func(line string) { s.console.println(s.console.paint(grey, "  │ ") + line) }
	stdout := &lines{take: func(line string) {
		show(line)
		s.tailed.Add(1)
	}}
	stderr := &lines{take: func(line string) { show(s.console.paint(grey, line)) }}
	color := map[bool]string{true: "always", false: "never"}[s.console.color]
	s.tail, err = s.children.start("forwarder tail", append(s.cleanEnv(), s.bus.reading()...),
		[]string{s.bin(), "tail", "--from-start", "--color=" + color}, stdout, stderr, s.fail)
	return err
}

// startForwarder starts it, for the first time or again.
func startForwarder(ctx context.Context, s *stage) (err error) {
	s.forwarder, err = s.children.start("forwarder run", s.env, []string{s.bin(), "run"}, s.forwarderLog, s.forwarderLog, s.fail)
	if err != nil || s.subscriber != nil {
		return err
	}
	s.subscriber, err = subscribe(ctx, s.bus)
	return err
}

func killForwarder(_ context.Context, s *stage) error { return s.forwarder.kill() }

// perform does one act and waits for what has to come of it.
func (s *stage) perform(ctx context.Context, a act) error {
	s.console.say(s.bus.words().fill(a.say), a.like...)
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	start, before := time.Now(), 0
	if s.subscriber != nil {
		before = s.subscriber.count()
	}
	if err := a.do(ctx, s); err != nil || len(a.want) == 0 {
		return err
	}
	err := s.subscriber.await(ctx, func(events []event) []string { return missing(a.want, events[before:]) })
	if err != nil {
		return err
	}
	took := since(start)
	if err := s.settle(ctx); err != nil {
		return err
	}
	seen := make([]string, len(a.want))
	for i, w := range a.want {
		seen[i] = w.String()
	}
	s.console.done("after %s: %s", took, strings.Join(seen, ", "))
	if a.note != nil {
		s.console.note("%s", strings.Join(a.note(s), "\n  "))
	}
	return nil
}

// settle waits until the bus shows what the API server shows, nothing is on its
// way any more, and all of it has been printed.
func (s *stage) settle(ctx context.Context) error {
	timeout := time.After(patience)
	for before := -1; ; {
		count, shown := s.subscriber.count(), s.subscriber.state()
		exists, err := s.cluster.versions(ctx)
		if err != nil {
			return err
		}
		quiet := count == before && s.tailed.Load() >= int64(count)
		if quiet && maps.Equal(shown, exists) {
			return nil
		}
		before = count
		select {
		case <-time.After(2 * poll):
		case <-timeout:
			return fmt.Errorf("for %s the bus does not show what the API server does:\n  %s\nor forwarder tail has not printed it: %d lines of %d",
				patience, strings.Join(differences(shown, exists), "\n  "), s.tailed.Load(), count)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func differences(shown, exists map[string]string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(exists)) {
		if shown[name] != exists[name] {
			found = append(found, fmt.Sprintf("%s: version %q on the bus, %q in the cluster", name, shown[name], exists[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if _, ok := exists[name]; !ok {
			found = append(found, fmt.Sprintf("%s: on the bus, not in the cluster", name))
		}
	}
	return found
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }
