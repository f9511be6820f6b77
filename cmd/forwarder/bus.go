package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
)

// bus is one sink with what only some of them can do.
type bus struct {
	publish.Publisher
	source  checkpoint.Source // nil where the sink cannot be read back
	purger  checkpoint.Purger // nil likewise
	history forward.History
	created func() uint64 // how often the stream was created by us
	marked  func(context.Context, schema.GroupResource) (t event.Type, id string, err error)
	server  *natsserver.Server // nil unless built in
}

// openBus connects to the configured sink and waits until it is ready.
func openBus(ctx context.Context, cfg config.Config, clusterName string, out io.Writer, log *slog.Logger, r prometheus.Registerer, progress func(func() error)) (*bus, error) {
	if cfg.Event.Sink == config.SinkStdout {
		return &bus{Publisher: stdout.New(out), history: forgetful{}, created: func() uint64 { return 0 }, marked: forgetful{}.marked}, nil
	}
	b := &bus{}
	if len(cfg.NATS.URLs) == 0 {
		server, err := natsserver.Start(ctx, natsserver.Options{
			ListenAddr: cfg.Server.Listen,
			StoreDir:   filepath.Join(cfg.Server.DataDir, "nats"),
			Logger:     log,
		})
		if err != nil {
			return nil, &usageError{err}
		}
		log.Info("built-in NATS server started", "address", cfg.Server.Listen, "dir", cfg.Server.DataDir)
		b.server = server
	}
	nb, err := nats.Connect(ctx, natsOptions(cfg, clusterName, b.server, log, r))
	if err != nil {
		return nil, errors.Join(busError(err), b.Close())
	}
	b.Publisher, b.source, b.purger, b.history, b.marked = nb, nb, nb, natsHistory{nb}, nb.LastMarker
	b.created = nb.Created
	progress(nb.Ready)
	if err := nb.Ready(); err != nil {
		log.Warn("waiting for the bus", "err", err)
	}
	if err := nb.Wait(ctx); err != nil {
		return nil, errors.Join(busError(err), b.Close())
	}
	return b, nil
}

// busError marks what waiting does not cure.
func busError(err error) error {
	if errors.Is(err, nats.ErrMisconfigured) {
		return &usageError{err}
	}
	return err
}

func natsOptions(cfg config.Config, clusterName string, server *natsserver.Server, log *slog.Logger, r prometheus.Registerer) nats.Options {
	n := cfg.NATS
	o := nats.Options{
		URLs: n.URLs, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix, Cluster: clusterName,
		Replicas: n.Replicas, History: n.History, ContentMode: nats.ContentMode(cfg.Event.ContentMode),
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, CredsFile: n.CredsFile, NkeyFile: n.NkeyFile,
		CAFile: n.CAFile, CertFile: n.CertFile, KeyFile: n.KeyFile,
		AckTimeout: n.AckTimeout, MaxInFlight: n.MaxInFlight, Logger: log, Registerer: r,
	}
	if server != nil {
		o.InProcess = server
	}
	return o
}

// Close closes the connection and then the built-in server.
func (b *bus) Close() error {
	var err error
	if b.Publisher != nil {
		err = b.Publisher.Close()
	}
	if b.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, b.server.Shutdown(ctx))
	}
	return err
}

// send is the bus as the forwarder sees it.
func (b *bus) send(ctx context.Context, m *event.Message, done func(forward.Outcome)) {
	b.Publish(ctx, m, func(position uint64, err error) {
		o := forward.Outcome{Position: position, Err: err, TooLarge: errors.Is(err, publish.ErrTooLarge), NotSent: errors.Is(err, publish.ErrNotSent)}
		var conflict *publish.ConflictError
		if errors.As(err, &conflict) {
			o.Conflict = &conflict.Bus
		}
		done(o)
	})
}

// natsHistory reads last states from the stream.
type natsHistory struct{ bus *nats.Bus }

func (h natsHistory) LastState(ctx context.Context, k event.Key, position uint64) (*event.Object, error) {
	stored, err := h.bus.At(ctx, k, position)
	return stored.Object, err
}

// forgetful is the history of a sink that cannot be read back.
type forgetful struct{}

func (forgetful) LastState(context.Context, event.Key, uint64) (*event.Object, error) {
	return nil, nil
}

func (forgetful) marked(context.Context, schema.GroupResource) (event.Type, string, error) {
	return "", "", nil
}

// snapshots puts the markers of first syncs on a bus.
type snapshots struct {
	bus     *bus
	builder event.Builder
	session string
}

var _ informers.Snapshots = (*snapshots)(nil)

func newSnapshots(b *bus, builder event.Builder) *snapshots {
	return &snapshots{bus: b, builder: builder, session: strconv.FormatInt(time.Now().UnixMilli(), 36)}
}

func (s *snapshots) Completed(ctx context.Context, gr schema.GroupResource) (bool, error) {
	last, _, err := s.bus.marked(ctx, gr)
	return last == event.SnapshotCompleted, err
}

func (s *snapshots) Started(ctx context.Context, r event.Resource) error {
	return s.put(ctx, event.SnapshotStarted, r, 0)
}

func (s *snapshots) Finished(ctx context.Context, r event.Resource, objects int) error {
	return s.put(ctx, event.SnapshotCompleted, r, objects)
}

func (s *snapshots) put(ctx context.Context, t event.Type, r event.Resource, objects int) error {
	m, err := s.builder.Marker(t, r, s.session, objects, time.Now())
	if err != nil {
		return err
	}
	// A marker has no position to expect. So that an attempt which landed
	// unanswered is not repeated, look first.
	if _, id, err := s.bus.marked(ctx, r.GroupResource()); err != nil || id == m.ID {
		return err
	}
	result := make(chan error, 1)
	s.bus.Publish(ctx, m, func(_ uint64, err error) { result <- err })
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", m.ID, err)
	}
	return nil
}
