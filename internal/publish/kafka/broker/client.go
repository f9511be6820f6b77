package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
)

// Client is a client for one Kafka cluster. It is safe for concurrent use.
type Client struct {
	opts      Options
	log       *slog.Logger
	transport *transport // of this Client alone, or shared with other Clients
	requests  requests
	advisor   *advice.Advisor
	kafka     *kafka.Client

	closing context.Context // ends with Close
	stop    context.CancelFunc
	closed  sync.Once
	fetches atomic.Uint64

	ranges, singles slots // for reads of many records, and for reads of one record

	warned sync.Map // topics whose settings could not be read

	failing atomic.Pointer[error] // see Failing
}

// New returns a client. It reads the credential files and connects to nothing: the first request
// reports whether the brokers are reachable. The error wraps [failure.ErrMisconfigured].
func New(opts Options) (*Client, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	t, err := cmp.Or(opts.Shared, &Shared{}).join(opts)
	if err != nil {
		return nil, err
	}
	c := &Client{opts: opts, log: opts.Logger, transport: t, ranges: newSlots(), singles: newSlots()}
	c.closing, c.stop = context.WithCancel(context.Background())
	c.requests = requests{t, c.closing}
	c.advisor = &advice.Advisor{Brokers: opts.Addrs, Secured: opts.TLS || opts.SASLMechanism != "", IAM: opts.SASLMechanism == login.AWSIAM, Principal: t.principal}
	// Without a Timeout, kafka-go would give the brokers 500 ms to gather the
	// acknowledgements of the replicas, whatever the context says.
	c.kafka = &kafka.Client{Addr: kafka.TCP(opts.Addrs...), Transport: c.requests, Timeout: opts.RequestTimeout}
	return c, nil
}

// Close closes all connections, unless other Clients share them. Requests in progress fail with
// an unknown outcome, and later ones fail at once. It is idempotent and does not wait for the
// brokers.
func (c *Client) Close() error {
	c.closed.Do(func() {
		c.stop()
		c.transport.leave()
	})
	return nil
}

// firstWait and maxWait bound the pause between the attempts of persist. If the brokers don't know
// a topic for longer than goneAfter, persist checks whether the topic exists. Before that, the
// topic might be new, because brokers learn of a new topic at different times.
const (
	firstWait = 50 * time.Millisecond
	maxWait   = time.Second
	goneAfter = 2 * time.Second
)

// failingAfter is the time after which [Client.Failing] reports a request that persist repeats.
const failingAfter = 5 * time.Second

// Failing returns the last error of a request that has failed for some seconds and is repeated, or nil if there
// is none.
func (c *Client) Failing() error {
	if err := c.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// persist repeats attempt until one of these is true:
//
//   - It succeeds, or fails with an error that a retry cannot fix.
//   - The topic does not exist ([ErrNoTopic]).
//   - ctx ends, or the client is closed.
func (c *Client) persist(ctx context.Context, topic string, attempt func() error) error {
	var unknown time.Time // when the brokers first did not know the topic
	var failing *error
	defer func() { c.failing.CompareAndSwap(failing, nil) }()
	started := time.Now()
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := attempt()
		if err == nil || failure.KindOf(err) != failure.Retry {
			return err
		}
		if time.Since(started) > failingAfter {
			failing = new(fmt.Errorf("a request for topic %q is repeated: %w", topic, err))
			c.failing.Store(failing)
		}
		switch {
		case topic == "" || !isUnknownTopic(err):
			unknown = time.Time{}
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > goneAfter:
			if _, gone := c.Topic(ctx, topic); errors.Is(gone, ErrNoTopic) {
				return gone
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, gave up: %w", err, context.Cause(ctx))
		case <-c.closing.Done():
			return fmt.Errorf("%w, gave up: %w", err, failure.ErrClosed)
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}
