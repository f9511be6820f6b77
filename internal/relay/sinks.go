package relay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/sinks"
)

// Connections are connections to the bus that several Relays with the same settings share.
type Connections struct {
	nats  nats.Shared
	kafka kafka.Shared
}

// NewConnections returns Connections that connect when the first Relay needs them, and close with
// the last Relay. log receives the messages that concern all of these Relays.
func NewConnections(log *slog.Logger) *Connections {
	return &Connections{nats: nats.Shared{Logger: log}, kafka: kafka.Shared{Logger: log}}
}

// openNATS starts to connect to the stream. Without KUBERELAY_NATS_URL it starts the
// built-in server first.
func openNATS(ctx context.Context, c Config, clusterName string, permit func() error, r prometheus.Registerer, invalid *publish.Invalid) (*bus, error) {
	b, cfg := &bus{}, c.Settings
	o := sinks.NATS(cfg)
	o.Cluster, o.Permit, o.Reading, o.Logger, o.Registerer, o.Invalid = clusterName, permit, c.loading, c.Logger, r, invalid
	if c.Connections != nil {
		o.Shared = &c.Connections.nats
	}
	if UsesBuiltInServer(cfg) {
		server := c.Server
		if server == nil {
			var err error
			if server, err = StartServer(ctx, c); err != nil {
				return nil, err
			}
			b.server = server
		}
		o.InProcess = server
		o.User, o.PasswordFile, o.TokenFile, o.CAFile = "", "", "", "" // these settings are for the server's subscribers
	}
	nb, err := nats.Connect(ctx, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.attach(nb)
	return b, nil
}

// UsesBuiltInServer reports whether the settings ask for the built-in NATS server.
func UsesBuiltInServer(cfg config.Config) bool {
	return cfg.Event.Sink == config.SinkNATS && len(cfg.NATS.URLs) == 0
}

// StartServer starts the built-in NATS server of the settings. Its error is a [config.Error].
func StartServer(ctx context.Context, c Config) (*natsserver.Server, error) {
	s, n := c.Settings.Server, c.Settings.NATS
	server, err := natsserver.Start(ctx, natsserver.Options{
		ListenAddr: s.Listen, StoreDir: sinks.StoreDir(s), MaxBytes: int64(s.MaxBytes), Logger: c.Logger,
		Access: natsserver.Access{
			User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, Anonymous: s.AllowAnonymous,
			CertFile: s.CertFile, KeyFile: s.KeyFile, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix,
		},
	})
	if err != nil {
		return nil, &config.Error{Err: err}
	}
	readers := "who give the token in " + natsserver.TokenFile(sinks.StoreDir(s))
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

// openKafka starts to connect to the brokers and to take over as the writer.
func openKafka(c Config, claim *claim, permit func() error, r prometheus.Registerer, invalid *publish.Invalid) (*bus, error) {
	o, err := sinks.Kafka(c.Settings)
	if err != nil {
		return nil, err
	}
	o.Cluster, o.Writer, o.Admit, o.Permit, o.MaxBytesInFlight = claim.name, c.Writer, claim.admitToKafka, permit, maxBytesInFlight
	o.Takeover, o.Reading = c.takeover, c.loading
	if c.Connections != nil {
		o.Broker.Shared = &c.Connections.kafka
	}
	o.Broker.Logger, o.Logger, o.Registerer, o.Invalid = c.Logger, c.Logger, r, invalid
	kb, err := kafka.Open(o)
	if err != nil {
		return nil, err
	}
	b := &bus{}
	b.attach(kb)
	return b, nil
}

// OpenWriter connects to the bus as the writer of the cluster name in the settings, regardless of
// which cluster owns the name. It waits until the bus is ready. On Kafka it takes over the topics,
// so that the brokers reject the previous writer. The caller must call closeBus. The error is a
// [config.Error] if a retry cannot succeed.
func OpenWriter(ctx context.Context, c Config) (_ publish.Bus, closeBus func() error, err error) {
	if UsesBuiltInServer(c.Settings) {
		return nil, nil, &config.Error{Err: errBuiltIn}
	}
	b, err := openBus(ctx, c, &claim{name: c.Settings.Event.ClusterName, log: c.Logger}, nil, c.Registerer, func(func() error) {})
	if err != nil {
		return nil, nil, err
	}
	return b.claims, b.Close, nil
}

var errBuiltIn = errors.New("KUBERELAY_NATS_URL is not set, and only its own forwarder can write to a built-in server")
