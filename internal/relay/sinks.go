package relay

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// openNATS starts to connect to the stream. Without KUBERELAY_NATS_URL it starts the
// built-in server first.
func openNATS(ctx context.Context, c Config, clusterName string, permit func() error, r prometheus.Registerer, invalid *publish.Invalid) (*bus, error) {
	b, cfg := &bus{}, c.Settings
	o := natsOptions(cfg)
	o.Cluster, o.Permit, o.Reading, o.Logger, o.Registerer, o.Invalid = clusterName, permit, c.loading, c.Logger, r, invalid
	if len(cfg.NATS.URLs) == 0 {
		server, err := startServer(ctx, c)
		if err != nil {
			return nil, &ConfigError{err}
		}
		b.server, o.InProcess = server, server
		o.User, o.PasswordFile, o.TokenFile, o.CAFile = "", "", "", "" // those of its subscribers
	}
	nb, err := nats.Connect(ctx, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.keep(nb)
	return b, nil
}

func startServer(ctx context.Context, c Config) (*natsserver.Server, error) {
	s, n := c.Settings.Server, c.Settings.NATS
	server, err := natsserver.Start(ctx, natsserver.Options{
		ListenAddr: s.Listen, StoreDir: storeDir(s), MaxBytes: int64(s.MaxBytes), Logger: c.Logger,
		Access: natsserver.Access{
			User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, Anonymous: s.AllowAnonymous,
			CertFile: s.CertFile, KeyFile: s.KeyFile, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix,
		},
	})
	if err != nil {
		return nil, err
	}
	readers := "who give the token in " + natsserver.TokenFile(storeDir(s))
	switch {
	case s.AllowAnonymous:
		readers = "all who reach the address, without credentials"
	case n.PasswordFile != "":
		readers = "who give the password in KUBERELAY_NATS_PASSWORD_FILE"
	case n.TokenFile != "":
		readers = "who give the token in KUBERELAY_NATS_TOKEN_FILE"
	}
	c.Logger.Info("built-in NATS server started", "address", s.Listen, "tls", s.CertFile != "", "readers", readers, "dir", s.DataDir, "max_bytes", s.MaxBytes)
	return server, nil
}

func storeDir(s config.Server) string { return filepath.Join(s.DataDir, "nats") }

// natsOptions returns the options for the stream of a Relay with these settings, without a
// logger.
func natsOptions(cfg config.Config) nats.Options {
	n := cfg.NATS
	return nats.Options{
		URLs: n.URLs, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix, Cluster: cfg.Event.ClusterName,
		Replicas: n.Replicas, History: n.History, ContentMode: nats.ContentMode(cfg.Event.ContentMode),
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, CredsFile: n.CredsFile, NkeyFile: n.NkeyFile,
		CAFile: n.CAFile, CertFile: n.CertFile, KeyFile: n.KeyFile,
		AckTimeout: n.AckTimeout, MaxInFlight: n.MaxInFlight,
	}
}

// openKafka starts to connect to the brokers and to take over as the writer.
func openKafka(c Config, claim *claim, permit func() error, r prometheus.Registerer, invalid *publish.Invalid) (*bus, error) {
	o, err := kafkaOptions(c.Settings)
	if err != nil {
		return nil, err
	}
	o.Cluster, o.Writer, o.Admit, o.Permit, o.Takeover, o.Reading = claim.name, c.Writer, claim.admitToKafka, permit, c.takeover, c.loading
	o.Broker.Logger, o.Logger, o.Registerer, o.Invalid = c.Logger, c.Logger, r, invalid
	kb, err := kafka.Open(o)
	if err != nil {
		return nil, err
	}
	b := &bus{}
	b.keep(kb)
	return b, nil
}

func kafkaOptions(cfg config.Config) (kafka.Options, error) {
	k := cfg.Kafka
	compression, err := recordbatch.ParseCompression(k.Compression)
	return kafka.Options{
		Broker: brokerOptions(k), Topic: k.Topic, CheckpointTopic: k.CheckpointTopic,
		Partitions: k.Partitions, Replication: k.Replication, CleanupPolicy: k.CleanupPolicy, Tombstones: k.Tombstones,
		ContentMode: kafka.ContentMode(cfg.Event.ContentMode), Compression: compression,
		Idempotent: k.Idempotent, TransactionalID: k.TransactionalID,
		AckTimeout: k.AckTimeout, MaxInFlight: k.MaxInFlight, MaxBytesInFlight: maxBytesInFlight, BatchBytes: k.BatchBytes,
	}, err
}

func brokerOptions(k config.Kafka) broker.Options {
	return broker.Options{
		Addrs: k.Brokers, TLS: k.TLS, CAFile: k.CAFile, CertFile: k.CertFile, KeyFile: k.KeyFile,
		SASLMechanism: k.SASLMechanism, User: k.User, PasswordFile: k.PasswordFile,
		OAuth: broker.OAuth{
			TokenFile: k.TokenFile, TokenURL: k.TokenURL, ClientID: k.ClientID, SecretFile: k.SecretFile,
			Scopes: k.Scopes, Audience: k.Audience, CAFile: k.OAuthCAFile,
		},
	}
}
