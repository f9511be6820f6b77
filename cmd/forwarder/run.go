package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/operations"
)

func newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Watch the cluster and forward its changes, until SIGTERM or SIGINT",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return configured(config.Forwarding, func(ctx context.Context, cfg config.Config, log *slog.Logger) error {
				return runForwarder(ctx, cfg, cmd.OutOrStdout(), log)
			})(cmd, args)
		},
	}
}

// runForwarder blocks until ctx ends and everything it started has ended, or until
// something fails for good. Metrics and health are served all the while, the
// drain included.
func runForwarder(ctx context.Context, cfg config.Config, out io.Writer, log *slog.Logger) error {
	limitMemory(log)
	key, err := redactionKey(cfg.Event.RedactionKeyFile)
	if err != nil {
		return err
	}
	server, err := operations.Listen(cfg.Operations.ListenAddr)
	if err != nil {
		return &usageError{err}
	}
	registry := prometheus.NewRegistry()
	operations.Register(registry, operations.Build{Version: version, Commit: commit})
	state := &readiness{waiting: func() error { return errStarting }}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		served <- server.Run(serving, operations.Endpoints{Metrics: registry, Ready: state.checks(cfg.Leader.Election), Log: log, Profiles: cfg.Operations.Profiles})
		cancel() // without its port a forwarder would be restarted anyway: let it end in order
	}()
	err = forwardAll(ctx, cfg, key, out, log, registry, state)
	stopServing()
	return errors.Join(<-served, err)
}

// forwardAll connects both sides, and forwards until ctx ends.
func forwardAll(ctx context.Context, cfg config.Config, key []byte, out io.Writer, log *slog.Logger, r prometheus.Registerer, state *readiness) error {
	c, err := connectCluster(ctx, cfg, log, state.wait)
	if err != nil {
		return err
	}
	log.Info("cluster found", "cluster", c.name, "uid", c.uid)
	if failpoint.Bug("standby-writes") {
		cfg.Leader.Election = false
	}
	p, err := newPipeline(cfg, c, key, out, log, r, state)
	if err != nil {
		return err
	}
	run := p.runAlone
	if cfg.Leader.Election {
		run = p.runElected
	}
	if err := run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

var errStarting = errors.New("starting")

// readiness is what /readyz tells: what is awaited before the pipeline runs, and
// then how informers and bus are. A standby is ready without a bus.
type readiness struct {
	mu       sync.Mutex
	waiting  func() error     // nil where no bus is awaited
	pipeline *pipeline        // nil before it runs
	election *leader.Election // nil without one
}

// wait says what is waited for now, nil for nothing.
func (s *readiness) wait(why func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = why
}

func (s *readiness) run(p *pipeline, e *leader.Election) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.pipeline, s.election = nil, p, e
}

func (s *readiness) checks(elects bool) []operations.Check {
	all := []operations.Check{{Name: "informers", Check: s.informers}, {Name: "bus", Check: s.bus}}
	if elects {
		all = append(all, operations.Check{Name: "lease", Check: s.lease, Note: s.leader})
	}
	return all
}

func (s *readiness) informers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipeline == nil {
		return s.why()
	}
	return s.pipeline.informers.Ready()
}

func (s *readiness) bus() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		return s.why()
	}
	if t := s.pipeline.term.Load(); t != nil {
		return t.bus.Ready()
	}
	return nil
}

func (s *readiness) why() error {
	if why := s.waiting(); why != nil {
		return why
	}
	return errStarting
}

func (s *readiness) lease() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.election == nil {
		return nil
	}
	return s.election.Ready()
}

// leader says who writes.
func (s *readiness) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.election == nil: // not yet
		return ""
	case s.election.Permit() == nil:
		return "leading"
	case s.election.Holder() == "":
		return "standing by, nobody leads"
	}
	return "standing by, the leader is " + s.election.Holder()
}

// redactionKey reads the key of the hashes that stand for Secrets' values, nil for none.
func redactionKey(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read KUBERELAY_REDACTION_KEY_FILE: %w", err)}
	}
	return bytes.TrimRight(key, "\r\n"), nil // an editor's last line break is not part of it
}
