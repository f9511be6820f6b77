package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// Client is one Kafka cluster. Its methods may be called by several goroutines at once.
type Client struct {
	opts      Options
	log       *slog.Logger
	transport *transport
	kafka     *kafka.Client

	closing context.Context // of Close, not of any request
	stop    context.CancelFunc
	workers sync.WaitGroup

	warned sync.Map // topics whose settings could not be looked at
}

// New makes a client. It reads the files, but connects to nothing: whether the brokers
// can be reached is for the first request to say. An error has [ErrMisconfigured] in
// its chain.
func New(opts Options) (*Client, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	t, err := newTransport(opts)
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts:      opts,
		log:       opts.Logger,
		transport: t,
		// Without a Timeout here kafka-go would give brokers 500 ms for the replicas'
		// acknowledgements, whatever the context says.
		kafka: &kafka.Client{Addr: kafka.TCP(opts.Addrs...), Transport: t, Timeout: opts.RequestTimeout},
	}
	c.closing, c.stop = context.WithCancel(context.Background())
	c.workers.Go(func() { t.watch(c.closing) })
	return c, nil
}

// Close ends all connections. Requests under way fail, with an unknown outcome, and
// later ones at once. It is idempotent and does not wait for the brokers.
func (c *Client) Close() error {
	c.stop()
	c.transport.close()
	c.workers.Wait()
	return nil
}

// What persist waits between attempts, and how long a topic must be unknown to be gone:
// a broker may hear of it later than the one that we have from.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = time.Second
	goneAfter = 2 * time.Second
)

// persist makes attempts until one succeeds or fails in a way that a retry does not cure,
// the topic turns out to be gone ([ErrNoTopic]), or ctx ends.
func (c *Client) persist(ctx context.Context, topic string, attempt func() error) error {
	var unknown time.Time // since when the brokers do not know the topic
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := attempt()
		if err == nil || KindOf(err) != Retry {
			return err
		}
		switch {
		case topic == "" || !isUnknownTopic(err):
			unknown = time.Time{}
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > goneAfter:
			if _, gone := c.Topic(ctx, topic); isNoTopic(gone) {
				return gone
			}
		}
		pause := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			err = fmt.Errorf("%w, given up: %w", err, context.Cause(ctx))
		case <-c.closing.Done():
			err = fmt.Errorf("%w, given up: %w", err, errClosed)
		case <-pause.C:
			continue
		}
		pause.Stop()
		return err
	}
}
