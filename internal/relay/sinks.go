package relay

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
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
	}
}

// NATSReaderOptions returns the options for reading the stream of a Relay with these settings
// from another process, without a logger. Without KUBERELAY_NATS_URL this is the built-in
// server of a Relay on this machine.
func NATSReaderOptions(cfg config.Config) (natsreader.Options, error) {
	n := cfg.NATS
	o := natsreader.Options{
		URLs: n.URLs, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix, Cluster: cfg.Event.ClusterName,
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, CredsFile: n.CredsFile, NkeyFile: n.NkeyFile,
		CAFile: n.CAFile, CertFile: n.CertFile, KeyFile: n.KeyFile, AckTimeout: n.AckTimeout,
	}
	if len(o.URLs) > 0 {
		return o, nil
	}
	host, port, err := net.SplitHostPort(cfg.Server.Listen)
	if err != nil {
		return o, err
	}
	if port == "0" {
		return o, errors.New("KUBERELAY_NATS_LISTEN has port 0, which stands for any: name the server in KUBERELAY_NATS_URL")
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	scheme := "nats://"
	if cfg.Server.CertFile != "" {
		scheme = "tls://"
	}
	o.URLs = []string{scheme + net.JoinHostPort(host, port)}
	if o.PasswordFile == "" && o.TokenFile == "" {
		o.TokenFile, o.TokenOptional = natsserver.TokenFile(storeDir(cfg.Server)), true
	}
	return o, nil
}

// KafkaReaderOptions returns the options for reading the topics of a Relay with these
// settings, without a logger.
func KafkaReaderOptions(cfg config.Config) reader.Options {
	checkpoint := cfg.Kafka.CheckpointTopic
	if checkpoint == "" {
		checkpoint = kafka.DefaultCheckpointTopic(cfg.Kafka.Topic)
	}
	return reader.Options{
		Broker: brokerOptions(cfg.Kafka), Topic: cfg.Kafka.Topic, CheckpointTopic: checkpoint, Cluster: cfg.Event.ClusterName,
	}
}

// InspectNATS looks at the server and the stream of a Relay with these settings, and writes nothing.
// Without KUBERELAY_NATS_URL this is the built-in server of a Relay on this machine, as its
// subscribers see it.
func InspectNATS(ctx context.Context, cfg config.Config) (nats.Inspection, error) {
	o := natsOptions(cfg)
	connection := o.Connection()
	if len(cfg.NATS.URLs) == 0 {
		var err error
		if connection, err = NATSReaderOptions(cfg); err != nil {
			return nats.Inspection{}, err
		}
	}
	return nats.Inspect(ctx, connection, o)
}

// InspectKafka looks at the topics of a Relay with these settings that watches these resources, and
// writes nothing.
func InspectKafka(ctx context.Context, cfg config.Config, resources []schema.GroupResource) (kafka.Inspection, error) {
	o, err := kafkaOptions(cfg)
	if err != nil {
		return kafka.Inspection{}, err
	}
	o.Cluster = cfg.Event.ClusterName
	return kafka.Inspect(ctx, o, resources)
}

// LastClaim reads the claim of the cluster name in these settings, the zero value for none.
func LastClaim(ctx context.Context, cfg config.Config) (event.Claim, error) {
	if cfg.Event.Sink == config.SinkKafka {
		i, err := InspectKafka(ctx, cfg, nil)
		return i.Claim, cmp.Or(err, i.ClaimErr)
	}
	i, err := InspectNATS(ctx, cfg)
	return i.Claim, cmp.Or(err, i.ClaimErr)
}

// OpenWriter connects to the bus as the writer of the cluster name in the settings, whichever cluster owns
// it, and waits until the bus is ready. On Kafka it takes over the topics: the brokers refuse the writer
// before it. Call close in the end. An error is a [ConfigError] if a retry cannot succeed.
func OpenWriter(ctx context.Context, c Config) (_ publish.Bus, closeBus func() error, err error) {
	if len(c.Settings.NATS.URLs) == 0 && c.Settings.Event.Sink == config.SinkNATS {
		return nil, nil, &ConfigError{errBuiltIn}
	}
	b, err := openBus(ctx, c, &claim{name: c.Settings.Event.ClusterName, log: c.Logger}, nil, c.Registerer, func(func() error) {})
	if err != nil {
		return nil, nil, err
	}
	return b.claims, b.Close, nil
}

var errBuiltIn = errors.New("KUBERELAY_NATS_URL is not set, and only its own forwarder can write to a built-in server")
