package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
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
)

// maxBytesInFlight bounds the memory of events that await their acknowledgement. There may
// be a thousand, and an object may have a megabyte.
const maxBytesInFlight = 16 << 20

// bus is one sink with what only some of them can do.
type bus struct {
	publish.Publisher
	room    *semaphore.Weighted // of maxBytesInFlight
	source  checkpoint.Source   // nil where the sink cannot be read back
	purger  checkpoint.Purger   // nil likewise
	history forward.History
	created func() uint64 // how often we created a stream or a topic
	marked  func(context.Context, schema.GroupResource) (t event.Type, id string, err error)
	wait    func(context.Context) error // until it is ready; nil where it always is
	server  *natsserver.Server          // nil unless built in
	claims  claimed                     // nil where the sink cannot be read back
	claim   *claim                      // nil likewise
}

// keeper is a sink that keeps what it was given.
type keeper interface {
	publish.Publisher
	checkpoint.Source
	checkpoint.Purger
	At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error)
	LastMarker(context.Context, schema.GroupResource) (t event.Type, id string, err error)
	LastClaim(context.Context) (event.Claim, error)
	Created() uint64
	Wait(context.Context) error
}

var _, _ keeper = (*nats.Bus)(nil), (*kafka.Bus)(nil)

func (b *bus) keep(k keeper) {
	b.Publisher, b.source, b.purger, b.history = k, k, k, history{k}
	b.created, b.marked, b.wait, b.claims = k.Created, k.LastMarker, k.Wait, k
}

// keepClaim makes the bus the cluster's only while its name is.
func (b *bus) keepClaim(c *claim) {
	if b.source != nil {
		b.claim, b.source = c, renewing{b.source, c}
	}
}

// Ready is nil while the bus can be reached and the cluster's name is ours.
func (b *bus) Ready() error {
	if err := b.claim.another(); err != nil {
		return err
	}
	return b.Publisher.Ready()
}

// openBus connects to the configured sink and waits until it is ready. The claim keeps
// it from taking over a bus that has the name for another cluster. Permit, if not nil, is
// asked right before anything is written.
func openBus(ctx context.Context, cfg config.Config, c *claim, permit func() error, out io.Writer, log *slog.Logger, r prometheus.Registerer, progress func(func() error)) (b *bus, err error) {
	switch cfg.Event.Sink {
	case config.SinkStdout:
		return &bus{Publisher: permitted{stdout.New(out), permit}, room: semaphore.NewWeighted(maxBytesInFlight), history: forgetful{}, created: func() uint64 { return 0 }, marked: forgetful{}.marked}, nil
	case config.SinkKafka:
		b, err = openKafka(cfg, c, permit, log, r)
	default:
		b, err = openNATS(ctx, cfg, c.name, permit, log, r)
	}
	if err != nil {
		return nil, busError(err)
	}
	b.room = semaphore.NewWeighted(maxBytesInFlight)
	b.keepClaim(c)
	progress(b.Ready)
	if err := b.Ready(); err != nil {
		log.Warn("waiting for the bus", "err", err)
	}
	if err := b.wait(ctx); err != nil {
		return nil, errors.Join(busError(err), b.Close())
	}
	return b, nil
}

// busError marks what waiting does not cure.
func busError(err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		return usage // it says all there is to say
	}
	if errors.Is(err, nats.ErrMisconfigured) || errors.Is(err, kafka.ErrMisconfigured) {
		return &usageError{err}
	}
	return err
}

// maxInFlight is how many events the sink takes at once.
func maxInFlight(cfg config.Config) int {
	if cfg.Event.Sink == config.SinkKafka {
		return cfg.Kafka.MaxInFlight
	}
	return cfg.NATS.MaxInFlight
}

// maxBehind is how many of those may be of a first sync, a resync or a comparison. A bus
// answers in the order in which it is asked, more or less, so a change stands behind them
// there: 256 are 40 ms on a NATS server that takes 7,000 a second. The rest is for changes.
func maxBehind(cfg config.Config) int {
	part := 2
	if cfg.Event.Sink == config.SinkKafka { // it has more in flight, for its batches
		part = 8
	}
	return max(1, maxInFlight(cfg)/part)
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
	if err := b.claim.another(); err != nil {
		done(forward.Outcome{Err: fmt.Errorf("%w: %w", publish.ErrNotSent, err), NotSent: true})
		return
	}
	size := min(int64(len(m.Data)), maxBytesInFlight)
	if err := b.room.Acquire(ctx, size); err != nil {
		done(forward.Outcome{Err: fmt.Errorf("%w: %w", publish.ErrNotSent, err), NotSent: true})
		return
	}
	b.Publish(ctx, m, func(position uint64, err error) {
		b.room.Release(size)
		if err == nil {
			done(forward.Outcome{Position: position})
			return
		}
		o := forward.Outcome{Err: err, TooLarge: errors.Is(err, publish.ErrTooLarge), NotSent: errors.Is(err, publish.ErrNotSent)}
		var conflict *publish.ConflictError
		if errors.As(err, &conflict) {
			o.Conflict = &conflict.Bus
		}
		done(o)
	})
}

// permitted asks before it writes to a sink that does not ask by itself.
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

// history reads last states back.
type history struct{ keeper }

func (h history) LastState(ctx context.Context, k event.Key, position uint64) (*event.Object, error) {
	stored, err := h.At(ctx, k, position)
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
