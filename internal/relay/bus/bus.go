// Package bus connects one cluster to its bus: it opens the configured sink, and makes sure that the
// cluster owns its name there.
//
// A cluster claims its name with a message on the bus. After a Bus has read another cluster's claim, Publish
// fails with [publish.ErrNotSent] and Ready with [publish.ErrGone]. On NATS, the Bus reads the claim every 10
// seconds and at each checkpoint load, so it can publish for up to 10 seconds after the other cluster's
// claim. On Kafka, the brokers reject its events at once. The package can't tell two clusters with one name
// apart if one of them hides the UID of its kube-system namespace.
package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// Bus is the configured sink. Make one with [Open].
type Bus struct {
	publish.Bus
	// Readable is false for a sink that cannot be read back. Only a successful publish shows that such a
	// sink is available again; Ready does not show it.
	Readable bool
	Invalid  *publish.Invalid // reports invalid messages that are read back; nil if the sink cannot be read back

	*claim                    // nil if the sink cannot be read back
	server *natsserver.Server // nil without the built-in server

	closing sync.Once
	closed  error // result of the first Close
}

var _, _ publish.Bus = (*nats.Bus)(nil), (*kafka.Bus)(nil)

// Ready returns nil while the bus is reachable. It returns an error if the last claim that this process
// read shows that another cluster took the name, or that a later release took over.
func (b *Bus) Ready() error {
	if err := b.taken(); err != nil {
		return err
	}
	return b.Bus.Ready()
}

// Publish publishes a message. It fails if the last claim that this process read shows that another
// cluster took the name, or that a later release took over.
func (b *Bus) Publish(ctx context.Context, m *event.Message, done func(position uint64, err error)) {
	if err := b.taken(); err != nil {
		done(0, fmt.Errorf("%w: %w", publish.ErrNotSent, err))
		return
	}
	b.Bus.Publish(ctx, m, done)
}

// Load renews the claim and then loads the checkpoint. The bus might have lost the claim together with
// other messages, and the claim must be published again before those messages.
func (b *Bus) Load(ctx context.Context, yield func(event.Key, event.Acked) error) error {
	if err := b.renew(ctx); err != nil {
		return err
	}
	return b.Bus.Load(ctx, yield)
}

// CloseTimeout is the time that a shutdown may take beyond KUBERELAY_DRAIN_TIMEOUT, to
// close the bus. It includes no wait for the cluster or for acknowledgements.
const CloseTimeout = 8 * time.Second

// Close closes the connection and then the built-in server. It is idempotent and takes at
// most [CloseTimeout].
func (b *Bus) Close() error {
	b.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- b.shutDown(ctx) }()
		select {
		case b.closed = <-closed:
		case <-ctx.Done():
			b.closed = fmt.Errorf("close the bus: not done within %s", CloseTimeout)
		}
	})
	return b.closed
}

func (b *Bus) shutDown(ctx context.Context) (err error) {
	if b.Bus != nil {
		err = b.Bus.Close()
	}
	if b.server != nil {
		err = errors.Join(err, b.server.Shutdown(ctx))
	}
	return err
}

// maxBytesInFlight limits the memory of the events that await an acknowledgement. By default, the
// limit on keys alone would allow 2048 events in flight on Kafka, of up to 1 MB each.
const maxBytesInFlight = 16 << 20

// LimitsOf returns a configuration with the limits of the configured sink.
func LimitsOf(cfg config.Config) workqueue.Config {
	keys, part, delay := cfg.NATS.MaxInFlight, 2, time.Duration(0) // Kafka has no delay limit, because events wait for a batch by design
	switch cfg.Event.Sink {
	case config.SinkKafka:
		keys, part = cfg.Kafka.MaxInFlight, 8 // Kafka has a higher limit, which fills batches
	case config.SinkNATS:
		delay = 500 * time.Microsecond
	}
	return workqueue.Config{
		MaxInFlight:            workqueue.Limit{Keys: keys, Bytes: maxBytesInFlight},
		MaxLowPriorityInFlight: workqueue.Limit{Keys: max(1, keys/part), Bytes: maxBytesInFlight / 2},
		MaxLowPriorityDelay:    delay,
	}
}
