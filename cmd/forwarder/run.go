package main

import (
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
// something fails for good.
func runForwarder(ctx context.Context, cfg config.Config, out io.Writer, log *slog.Logger) (err error) {
	key, err := redactionKey(cfg.Event.RedactionKeyFile)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	waiting := &startup{err: errors.New("starting")}

	c, err := connectCluster(ctx, cfg, log, waiting.set)
	if err != nil {
		return err
	}
	log.Info("cluster found", "cluster", c.name)
	b, err := openBus(ctx, cfg, c.name, out, log, registry, waiting.set)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	p := newPipeline(cfg, c, b, key, log, registry, nil)
	if err := p.load(ctx, b, waiting.set); err != nil {
		return err
	}
	waiting.set(nil)
	if err := p.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// startup says what is awaited before the pipeline runs, nil once it does.
type startup struct {
	mu  sync.Mutex
	err error
}

func (s *startup) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *startup) get() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
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
	return key, nil
}
