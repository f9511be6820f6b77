package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
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
		served <- server.Run(serving, operations.Endpoints{Metrics: registry, Ready: state.checks(), Log: log, Profiles: cfg.Operations.Profiles})
		cancel() // without its port a forwarder would be restarted anyway: let it end in order
	}()
	err = forwardAll(ctx, cfg, key, out, log, registry, state)
	stopServing()
	return errors.Join(<-served, err)
}

// forwardAll connects both sides, and forwards until ctx ends.
func forwardAll(ctx context.Context, cfg config.Config, key []byte, out io.Writer, log *slog.Logger, r prometheus.Registerer, state *readiness) (err error) {
	c, err := connectCluster(ctx, cfg, log, state.wait)
	if err != nil {
		return err
	}
	log.Info("cluster found", "cluster", c.name, "uid", c.uid)
	claim, err := newClaim(cfg, c, log)
	if err != nil {
		return err
	}
	b, err := openBus(ctx, cfg, claim, out, log, r, state.wait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	p := newPipeline(cfg, c, b, key, log, r)
	if err := p.load(ctx, b, state.wait); err != nil {
		return err
	}
	epoch, err := claim.settle(ctx, b, p.checkpoint, state.wait)
	if err != nil {
		return err
	}
	p.informers.RaiseEpoch(epoch)
	keeping, stopKeeping := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { claim.keep(keeping) })
	defer func() { stopKeeping(); kept.Wait() }()
	state.run(p, b)
	if err := p.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

var errStarting = errors.New("starting")

// readiness is what /readyz tells: what is awaited before the pipeline runs, and
// then how informers and bus are.
type readiness struct {
	mu       sync.Mutex
	waiting  func() error // nil once the pipeline runs
	pipeline *pipeline
	bus      *bus
}

// wait says what the start waits for now.
func (s *readiness) wait(why func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = why
}

func (s *readiness) run(p *pipeline, b *bus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.pipeline, s.bus = nil, p, b
}

func (s *readiness) checks() []operations.Check {
	running := func(check func() error) func() error {
		return func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.waiting == nil {
				return check()
			}
			if why := s.waiting(); why != nil {
				return why
			}
			return errStarting
		}
	}
	return []operations.Check{
		{Name: "informers", Check: running(func() error { return s.pipeline.informers.Ready() })},
		{Name: "bus", Check: running(func() error { return s.bus.Ready() })},
	}
}

// redactionKey reads the key of the hashes that stand for Secrets' values, or
// draws one that ends with the process.
func redactionKey(file string) ([]byte, error) {
	if file == "" {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, &usageError{fmt.Errorf("read KUBERELAY_REDACTION_KEY_FILE: %w", err)}
	}
	return bytes.TrimRight(key, "\r\n"), nil // an editor's last line break is not part of it
}
