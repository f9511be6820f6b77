package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// Bus is a Kafka cluster that the events of one Kubernetes cluster are published to.
type Bus struct {
	opts    Options
	client  *broker.Client
	produce produce
	log     *slog.Logger
	metrics *metrics

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	workers sync.WaitGroup
	close   sync.Once
	look    chan struct{} // has a token when the connection is to be looked at

	slots   chan struct{} // one for each message in flight
	flights flights
	created atomic.Uint64 // topics

	mu      sync.Mutex
	session *session      // nil while there is none that can be written to
	err     error         // why not, or what else is wrong
	changed chan struct{} // closed when these change
}

// Open connects, in the background: [Bus.Ready] says how far it got. It returns an
// error only for options that cannot work.
func Open(o Options) (*Bus, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := broker.New(o.Broker)
	if err != nil {
		return nil, err
	}
	b := &Bus{
		opts: o, client: client, log: o.Logger, metrics: newMetrics(o.Registerer),
		look: make(chan struct{}, 1), slots: make(chan struct{}, o.MaxInFlight),
		err: errors.New("not connected yet"), changed: make(chan struct{}),
	}
	if b.produce = o.produce; b.produce == nil {
		b.produce = client.Produce
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.workers.Go(b.supervise)
	b.workers.Go(b.sweepOften)
	return b, nil
}

// newID tells one session from another.
func newID() string { return strings.ToLower(rand.Text()[:16]) }

const (
	minRetry  = 200 * time.Millisecond // between two attempts to take over
	maxRetry  = 5 * time.Second
	lookEvery = time.Second
	lookLimit = 5 * time.Second
)

// supervise keeps a session, one after the other, until Close or until another writer
// has taken over.
func (b *Bus) supervise() {
	previous, pause := recordbatch.Producer{ID: -1, Epoch: -1}, minRetry
	for b.ctx.Err() == nil {
		s, producer, err := b.takeOver(b.ctx, previous)
		previous = producer
		if err == nil {
			pause = minRetry
			b.metrics.sessions.Inc()
			b.set(s, nil)
			b.log.Info("writing to Kafka", "topic", b.opts.Topic, "writer", b.opts.Writer, "producer", s.producer.ID, "epoch", s.producer.Epoch)
			b.watch(s)
			s.wait()
			err = s.errOf()
		}
		switch {
		case b.ctx.Err() != nil:
			return
		case errors.Is(err, publish.ErrGone), broker.KindOf(err) == broker.Fenced:
			if !errors.Is(err, publish.ErrGone) {
				err = fmt.Errorf("%w: %w", publish.ErrGone, err)
			}
			err = fmt.Errorf("another forwarder has taken over%s; run one with the same KUBERELAY_CLUSTER_NAME or KUBERELAY_KAFKA_TRANSACTIONAL_ID: %w", b.whoWrites(), err)
			b.log.Error("another writer has taken over", "err", err)
			b.set(nil, err)
			return
		case errors.Is(err, errRenew):
			b.log.Info("renewing the producer's id")
			b.set(nil, err)
			continue // at once: a session is renewed at an age that the next begins without
		case broker.KindOf(err) == broker.Denied:
			err = fmt.Errorf("%w: %w", ErrMisconfigured, err)
		}
		b.set(nil, err)
		b.log.Warn("not writing to Kafka; will be tried again", "err", err)
		if sleep(b.ctx, pause) != nil {
			return
		}
		pause = min(2*pause, maxRetry)
	}
}

// watch blocks until the session ends. It looks all the time whether the brokers
// answer, so that Ready can tell, and whether the topics are still there.
func (b *Bus) watch(s *session) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-s.ctx.Done():
			b.set(nil, context.Cause(s.ctx))
			return
		case <-b.ctx.Done():
			s.end(errStopped)
			continue
		case <-b.look:
		case <-ticker.C:
		}
		if s.isOld() {
			s.end(errRenew)
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, min(b.opts.AckTimeout, lookLimit))
		topic := s.topicOfTurn(turn)
		offsets, err := b.client.Offsets(ctx, topic) // unlike a look at the topic, this asks the partitions' leaders
		if err == nil && topic == b.opts.CheckpointTopic && len(offsets.End) > 0 {
			err = b.lookForAnother(ctx, s, offsets.End[0])
		}
		cancel()
		switch {
		case s.ctx.Err() != nil:
		case errors.Is(err, publish.ErrGone):
			s.end(err)
		case errors.Is(err, broker.ErrNoTopic):
			s.end(topicLost(topic, err))
		case err != nil:
			b.set(s, errors.Join(err, s.failure()))
		default:
			b.set(s, nil) // even if some partition fails: others go on
		}
	}
}

// lookForAnother tells with [publish.ErrGone] that another writer has taken over. One
// that has nothing to write is not told by the brokers.
func (b *Bus) lookForAnother(ctx context.Context, s *session, end int64) error {
	if s.producer.ID < 0 || s.recorder.lanes[0].end() >= end {
		return nil // all there is is ours
	}
	taken := false
	writerKey := event.WriterPartitionKey(b.opts.Cluster, b.opts.CheckpointTopic, 0)
	_, err := b.client.Read(ctx, b.opts.CheckpointTopic, 0, s.looked, end, func(r broker.Record) error {
		taken = taken || string(r.Key) == writerKey
		return nil
	})
	if taken {
		return publish.ErrGone
	}
	if err == nil {
		s.looked = end
	}
	return err
}

func (b *Bus) lookSoon() {
	select {
	case b.look <- struct{}{}:
	default:
	}
}

// set says what Ready says.
func (b *Bus) set(s *session, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.err = s, err
	close(b.changed)
	b.changed = make(chan struct{})
	b.metrics.ready.Set(0)
	if err == nil {
		b.metrics.ready.Set(1)
	}
}

func (b *Bus) current() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session, b.err
}

// Ready is [publish.Publisher]'s: nil while this is the writer, and the brokers answer.
func (b *Bus) Ready() error {
	_, err := b.current()
	return err
}

// Wait blocks until the bus is ready, ctx ends, or it turns out that waiting will not
// help ([ErrMisconfigured]).
func (b *Bus) Wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		err, changed := b.err, b.changed
		b.mu.Unlock()
		if err == nil || errors.Is(err, ErrMisconfigured) || errors.Is(err, publish.ErrGone) {
			return err
		}
		select {
		case <-changed:
		case <-b.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for the bus: %w (%w)", ctx.Err(), err)
		}
	}
}

// Created is how often this bus has created a topic. If it grows after it was ready,
// somebody removed a topic with all that was in it, or a resource has got one.
func (b *Bus) Created() uint64 { return b.created.Load() }

// closeTimeout bounds how long Close waits for completions that are running.
const closeTimeout = 5 * time.Second

// Close is [publish.Publisher]'s. When it returns, every completion has been
// called and has returned, unless one of them took several seconds.
func (b *Bus) Close() error {
	var err error
	b.close.Do(func() {
		b.stop()
		b.set(nil, errClosed)
		b.workers.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err = b.flights.pending.Wait(ctx); err != nil {
			err = fmt.Errorf("wait for completions: %w", err)
		}
		err = errors.Join(err, b.client.Close())
	})
	return err
}
