package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/publish/stdout"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// maxBytesInFlight limits the memory of the events that await an acknowledgement. By default, the
// limit on keys alone would allow 2048 events in flight on Kafka, of up to 1 MB each.
const maxBytesInFlight = 16 << 20

// bus is the configured sink, including capabilities that only some sinks have.
type bus struct {
	publish.Publisher
	source         checkpoint.Source // nil if the sink cannot be read back
	purger         checkpoint.Purger // nil if the sink cannot be read back
	history        forward.History
	probes         bool                  // Ready detects on its own that the sink is available again; otherwise only a publish does
	risks          func() []publish.Risk // nil if the sink is not a bus
	possibleLosses func() uint64         // see [publish.Bus]
	lastMarker     func(context.Context, schema.GroupResource) (t event.Type, id string, err error)
	wait           func(context.Context) error // blocks until the sink is ready; nil if it always is
	server         *natsserver.Server          // nil without the built-in server
	claims         publish.Bus                 // nil if the sink cannot be read back
	claim          *claim                      // nil if the sink cannot be read back
	invalid        *publish.Invalid            // reports invalid messages that are read back

	closing sync.Once
	closed  error // result of the first Close
}

var _, _ publish.Bus = (*nats.Bus)(nil), (*kafka.Bus)(nil)

// attach sets the capabilities of a sink that can be read back.
func (b *bus) attach(k publish.Bus) {
	b.Publisher, b.source, b.purger, b.history = k, k, k, k
	b.possibleLosses, b.lastMarker, b.wait, b.claims, b.probes = k.PossibleLosses, k.LastMarker, k.Wait, k, true
	b.risks = k.Risks
}

// attachClaim makes the bus fail when another cluster takes the name.
func (b *bus) attachClaim(c *claim) {
	if b.source != nil {
		b.claim, b.source = c, renewing{b.source, c}
	}
}

// Ready returns nil while the bus is reachable and no other cluster has taken the name.
func (b *bus) Ready() error {
	if err := b.claim.taken(); err != nil {
		return err
	}
	return b.Publisher.Ready()
}

// openBus connects to the configured sink and waits until it is ready. It does not take over a bus
// on which another cluster owns the claim's name. permit, if not nil, is called before each write.
func openBus(ctx context.Context, c Config, claim *claim, permit func() error, r prometheus.Registerer, waitFor func(func() error)) (b *bus, err error) {
	invalid := publish.NewInvalid(r, c.Logger)
	switch c.Settings.Event.Sink {
	case config.SinkStdout:
		return &bus{Publisher: permitted{stdout.New(c.Out), permit}, history: noHistory{}, possibleLosses: func() uint64 { return 0 }, lastMarker: noHistory{}.lastMarker}, nil
	case config.SinkKafka:
		b, err = openKafka(c, claim, permit, r, invalid)
	case config.SinkNATS:
		b, err = openNATS(ctx, c, claim.name, permit, r, invalid)
	default:
		err = &config.Error{Err: fmt.Errorf("KUBERELAY_SINK is %q, want nats, kafka or stdout", c.Settings.Event.Sink)}
	}
	if err != nil {
		return nil, busError(err)
	}
	b.invalid, claim.invalid = invalid, invalid
	b.attachClaim(claim)
	waitFor(b.Ready)
	if err := b.Ready(); err != nil {
		c.Logger.Warn("waiting for the bus", "err", err)
	}
	if err := b.wait(ctx); err != nil {
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

// maxInFlight returns the limit of the events in flight.
func maxInFlight(cfg config.Config) workqueue.Limit {
	keys := cfg.NATS.MaxInFlight
	if cfg.Event.Sink == config.SinkKafka {
		keys = cfg.Kafka.MaxInFlight
	}
	return workqueue.Limit{Keys: keys, Bytes: maxBytesInFlight}
}

// maxLowPriorityInFlight returns the limit of the low-priority events in flight: those of a first
// sync, a resync or a comparison. A bus processes messages roughly in order, so a change waits
// behind them.
func maxLowPriorityInFlight(cfg config.Config) workqueue.Limit {
	all, part := maxInFlight(cfg), 2
	if cfg.Event.Sink == config.SinkKafka { // Kafka has a higher limit, which fills batches
		part = 8
	}
	return workqueue.Limit{Keys: max(1, all.Keys/part), Bytes: all.Bytes / 2}
}

// maxLowPriorityDelay returns how long a low-priority event may wait on the bus for other
// low-priority events. It returns 0, which means no limit, for Kafka, where events wait for a batch
// by design.
func maxLowPriorityDelay(cfg config.Config) time.Duration {
	if cfg.Event.Sink == config.SinkNATS {
		return 500 * time.Microsecond
	}
	return 0
}

// Close closes the connection and then the built-in server. It is idempotent and takes at
// most closeTimeout.
func (b *bus) Close() error {
	b.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- b.shutDown(ctx) }()
		select {
		case b.closed = <-closed:
		case <-ctx.Done():
			b.closed = fmt.Errorf("close the bus: not done within %s", closeTimeout)
		}
	})
	return b.closed
}

func (b *bus) shutDown(ctx context.Context) (err error) {
	if b.Publisher != nil {
		err = b.Publisher.Close()
	}
	if b.server != nil {
		err = errors.Join(err, b.server.Shutdown(ctx))
	}
	return err
}

// Publish publishes while this cluster owns its name.
func (b *bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	if err := b.claim.taken(); err != nil {
		done(0, fmt.Errorf("%w: %w", publish.ErrNotSent, err))
		return
	}
	b.Publisher.Publish(ctx, m, done)
}

// permitted checks the permit before each write, for a sink that does not check it.
type permitted struct {
	publish.Publisher
	permit func() error
}

func (p permitted) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	if p.permit != nil {
		if err := p.permit(); err != nil {
			done(0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, err))
			return
		}
	}
	p.Publisher.Publish(ctx, m, done)
}

// noHistory is the history of a sink that cannot be read back.
type noHistory struct{}

func (noHistory) At(context.Context, event.Key, uint64) (publish.Stored, error) {
	return publish.Stored{}, nil
}

func (noHistory) lastMarker(context.Context, schema.GroupResource) (event.Type, string, error) {
	return "", "", nil
}
