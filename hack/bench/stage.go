package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/kuberelay/kuberelay/internal/childprocess"
	"github.com/kuberelay/kuberelay/internal/kafkabroker"
)

// stage is all that runs for the benchmark, and what it has found.
type stage struct {
	settings
	out    io.Writer
	dir    string // removed at the end, with all processes
	root   string // of the source
	binary string // the forwarder
	self   string // this binary, for its roles
	group  *childprocess.Group

	cluster *cluster
	kafka   *kafkabroker.Broker // nil until it is needed
	topics  int                 // that runs have had
	report  report
}

// bench does the parts that are asked for, on a stage of its own.
func bench(ctx context.Context, settings settings, out io.Writer) (err error) {
	s := &stage{settings: settings, out: out}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "kuberelay-bench-"); err != nil {
		return err
	}
	if s.group, err = childprocess.NewGroup(s.dir); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	failed := s.perform(ctx)
	if failed != nil && len(s.report.sections) == 0 {
		return failed
	}
	return errors.Join(failed, s.conclude()) // what was measured until then took long
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// build builds the forwarder as «make build» does.
func (s *stage) build(ctx context.Context) error {
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the source: %w", err)
	}
	s.root = filepath.Dir(string(bytes.TrimSpace(gomod)))
	s.binary = filepath.Join(s.root, "bin", "forwarder")
	build := exec.CommandContext(ctx, "make", "--no-print-directory", "build")
	build.Dir = s.root
	output, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the forwarder: %w\n%s", err, output)
	}
	return nil
}

// perform does the parts, those of one cluster together.
func (s *stage) perform(ctx context.Context) error {
	if slices.ContainsFunc(s.parts, func(p string) bool { return p != "publish" }) {
		s.say("==> a real control plane")
		var err error
		if s.cluster, err = startCluster(ctx, s.dir, s.out); err != nil {
			return err
		}
	}
	for i, n := range s.pods {
		if err := s.performOn(ctx, n, i == 0); err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	if s.wants("publish") {
		return s.benchPublishing(ctx)
	}
	return nil
}

// performOn does the parts that need a cluster, of n pods. A steady stream of changes is the
// same on every cluster, so it is measured on the first.
func (s *stage) performOn(ctx context.Context, n int, first bool) error {
	parts := []struct {
		name string
		do   func(context.Context, int) error
	}{{"fill", func(context.Context, int) error { return nil }}, {"sync", s.benchSync}, {"latency", s.benchLatency}, {"rate", s.benchRate}, {"live", s.benchLive}}
	held := false
	for _, p := range parts {
		if !s.wants(p.name) || !first && (p.name == "latency" || p.name == "rate") {
			continue
		}
		if !held {
			s.say("==> a cluster of %d pods", n)
			if err := s.cluster.hold(ctx, n); err != nil {
				return err
			}
			held = true
		}
		s.say("==> %s, %d pods", p.name, n)
		if err := p.do(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// strike ends all that runs, and removes its files.
func (s *stage) strike() error {
	var errs []error
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, s.group.Close())...)
}

// play starts this binary in a role of its own.
func (s *stage) play(ctx context.Context, role string, args ...string) (*played, error) {
	p, err := startProcess(ctx, s.group, s.dir, role, true, nil, slices.Concat([]string{s.self, role}, args)...)
	if err != nil {
		return nil, err
	}
	return &played{process: p, in: json.NewDecoder(p.stdout)}, nil
}
