package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/sinks"
)

// Config configures the connection of one cluster to its bus. Every field is required unless its
// comment says otherwise.
type Config struct {
	Settings config.Config // as config.Load has checked them
	Cluster  string        // the cluster's name on the bus
	UID      string        // of the kube-system namespace; "" if reading it is forbidden

	// Writer names this process in the marker of a takeover on Kafka. If it is "", the host name is
	// used.
	Writer string
	// Permit is called before each write, and its error rejects the write. It may be nil.
	Permit func() error
	// WaitFor receives a function that returns the reason why the connection is not ready, or nil.
	WaitFor func(func() error)

	// Server is the built-in NATS server that several buses share. If it is nil and the settings
	// ask for a built-in server, the Bus runs its own.
	Server *natsserver.Server
	// Connections are the connections that several buses share. If nil, the Bus opens its own.
	Connections *Connections
	// Takeover counts the records that a takeover on Kafka reads. Loading counts the messages that
	// a checkpoint load reads. Both may be nil.
	Takeover, Loading *longwork.Counter

	Out        *stdout.Output // where the sink stdout writes
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Open connects to the configured sink and waits until it is ready. It does not take over a bus on
// which another cluster owns the name. The error is a [config.Error] if a retry cannot succeed.
func Open(ctx context.Context, c Config) (*Bus, error) {
	claim, err := newClaim(c)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, claim)
}

func open(ctx context.Context, c Config, claim *claim) (b *Bus, err error) {
	invalid := publish.NewInvalid(c.Registerer, c.Logger)
	switch c.Settings.Event.Sink {
	case config.SinkStdout:
		return &Bus{Bus: unreadable{stdout.New(c.Out), c.Permit}}, nil
	case config.SinkKafka:
		b, err = openKafka(c, claim, invalid)
	case config.SinkNATS:
		b, err = openNATS(ctx, c, invalid)
	default:
		err = &config.Error{Err: fmt.Errorf("KUBERELAY_SINK is %q, want nats, kafka, or stdout", c.Settings.Event.Sink)}
	}
	if err != nil {
		return nil, busError(err)
	}
	b.Readable, b.Invalid, claim.invalid, claim.bus = true, invalid, invalid, b.Bus
	b.claim = claim // from here on, Ready and Publish fail if another cluster takes the name
	c.WaitFor(b.Ready)
	if err := b.Ready(); err != nil {
		c.Logger.Warn("waiting for the bus", "err", err)
	}
	if err := b.Wait(ctx); err != nil {
		return nil, errors.Join(busError(err), b.Close())
	}
	return b, nil
}

// busError converts an error that a retry cannot fix to a config.Error.
func busError(err error) error {
	var wrong *config.Error
	if errors.As(err, &wrong) {
		return wrong // without the errors that wrap it
	}
	if errors.Is(err, nats.ErrMisconfigured) || errors.Is(err, kafka.ErrMisconfigured) {
		return &config.Error{Err: err}
	}
	return err
}

// Connections are connections to the bus that several Buses with the same settings share.
type Connections struct {
	nats  nats.Shared
	kafka kafka.Shared
}

// NewConnections returns Connections that connect when the first Bus needs them, and close with the
// last Bus. log receives the messages that concern all of these Buses.
func NewConnections(log *slog.Logger) *Connections {
	return &Connections{nats: nats.Shared{Logger: log}, kafka: kafka.Shared{Logger: log}}
}

// openNATS starts to connect to the stream. Without KUBERELAY_NATS_URL, it starts the built-in
// server first.
func openNATS(ctx context.Context, c Config, invalid *publish.Invalid) (*Bus, error) {
	b, cfg := &Bus{}, c.Settings
	o := sinks.NATS(cfg)
	o.Cluster, o.Permit, o.Reading, o.Logger, o.Registerer, o.Invalid = c.Cluster, c.Permit, c.Loading, c.Logger, c.Registerer, invalid
	if c.Connections != nil {
		o.Shared = &c.Connections.nats
	}
	if cfg.BuiltInServer() {
		server := c.Server
		if server == nil {
			var err error
			if server, err = StartServer(ctx, cfg, c.Logger); err != nil {
				return nil, err
			}
			b.server = server
		}
		o.InProcess = server
		o.User, o.PasswordFile, o.TokenFile, o.CAFile, o.ServerName = "", "", "", "", "" // these settings are for the server's subscribers
	}
	nb, err := nats.Connect(ctx, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.Bus = nb
	return b, nil
}

// StartServer starts the built-in NATS server of the settings. Its error is a [config.Error].
func StartServer(ctx context.Context, cfg config.Config, log *slog.Logger) (*natsserver.Server, error) {
	s, n := cfg.Server, cfg.NATS
	server, err := natsserver.Start(ctx, natsserver.Options{
		ListenAddr: s.Listen, StoreDir: sinks.StoreDir(s), MaxBytes: int64(s.MaxBytes), Logger: log,
		Access: natsserver.Access{
			User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile, Anonymous: s.AllowAnonymous,
			CertFile: s.CertFile, KeyFile: s.KeyFile, Stream: n.Stream, SubjectPrefix: n.SubjectPrefix,
		},
	})
	if err != nil {
		return nil, &config.Error{Err: err}
	}
	readers := "clients with the token in " + natsserver.TokenFile(sinks.StoreDir(s))
	switch {
	case s.AllowAnonymous:
		readers = "all clients that reach the address, without credentials"
	case n.PasswordFile != "":
		readers = "clients with the password in KUBERELAY_NATS_PASSWORD_FILE"
	case n.TokenFile != "":
		readers = "clients with the token in KUBERELAY_NATS_TOKEN_FILE"
	}
	log.Info("built-in NATS server started", "address", server.Addr(), "tls", s.CertFile != "", "readers", readers, "dir", s.DataDir, "max_bytes", s.MaxBytes)
	return server, nil
}

// openKafka starts to connect to the brokers and to take over as the writer.
func openKafka(c Config, claim *claim, invalid *publish.Invalid) (*Bus, error) {
	o, err := sinks.Kafka(c.Settings)
	if err != nil {
		return nil, err
	}
	o.Cluster, o.Writer, o.Admit, o.Permit, o.MaxBytesInFlight = c.Cluster, c.Writer, claim.admitToKafka, c.Permit, maxBytesInFlight
	o.Takeover, o.Reading = c.Takeover, c.Loading
	if c.Connections != nil {
		o.Broker.Shared = &c.Connections.kafka
	}
	o.Broker.Logger, o.Logger, o.Registerer, o.Invalid = c.Logger, c.Logger, c.Registerer, invalid
	kb, err := kafka.Open(o)
	if err != nil {
		return nil, err
	}
	return &Bus{Bus: kb}, nil
}

// OpenWriter connects to the bus as the writer of the cluster name in the settings, regardless of
// which cluster owns the name. It waits until the bus is ready. On Kafka, it takes over the topics,
// so that the brokers reject the previous writer. It ignores Cluster, UID, and WaitFor. The error is
// a [config.Error] if a retry cannot succeed.
func OpenWriter(ctx context.Context, c Config) (*Bus, error) {
	if c.Settings.BuiltInServer() {
		return nil, &config.Error{Err: errors.New("KUBERELAY_NATS_URL is not set, and only its own forwarder can write to a built-in server")}
	}
	c.Cluster, c.WaitFor = c.Settings.Event.ClusterName, func(func() error) {}
	return open(ctx, c, &claim{name: c.Cluster, log: c.Logger})
}

// unreadable is a sink that cannot be read back, and that does not check the permit by itself.
type unreadable struct {
	publish.Publisher
	permit publish.Permit
}

var _ publish.Bus = unreadable{}

func (u unreadable) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	if err := u.permit.Check(); err != nil {
		done(0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, err))
		return
	}
	u.Publisher.Publish(ctx, m, done)
}

func (unreadable) Wait(context.Context) error                                     { return nil }
func (unreadable) Load(context.Context, func(event.Key, event.Acked) error) error { return nil }
func (unreadable) Purge(context.Context, event.Key, uint64) error                 { return nil }
func (unreadable) LastClaim(context.Context) (event.Claim, error)                 { return event.Claim{}, nil }
func (unreadable) PossibleLosses() uint64                                         { return 0 }
func (unreadable) Risks() []publish.Risk                                          { return nil }
func (unreadable) Stream() string                                                 { return "" }

func (unreadable) At(context.Context, event.Key, uint64) (publish.Stored, error) {
	return publish.Stored{}, nil
}

func (unreadable) LastMarker(context.Context, schema.GroupResource) (event.Type, string, error) {
	return "", "", nil
}
