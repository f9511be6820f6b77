package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// openNATS begins to connect to the stream, after it has started the built-in server
// if that is to be used.
func openNATS(ctx context.Context, cfg config.Config, clusterName string, permit func() error, log *slog.Logger, r prometheus.Registerer) (*bus, error) {
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
	o := natsOptions(cfg, clusterName, b.server, log, r)
	o.Permit = permit
	nb, err := nats.Connect(ctx, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.keep(nb)
	return b, nil
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
