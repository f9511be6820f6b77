package kafka

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/topics"
)

// Bus publishes the events of one Kubernetes cluster to a Kafka cluster.
type Bus struct {
	opts    Options
	client  *broker.Client
	produce sender.Produce
	log     *slog.Logger
	metrics *metrics
	stored  *stored.Reader
	topics  *topics.Topics

	ctx      context.Context // canceled by Close, with the cause errStopped
	stop     context.CancelFunc
	workers  sync.WaitGroup
	close    sync.Once
	probeNow chan struct{} // signals the supervisor to probe the connection

	slots   chan struct{} // one for each message in flight
	flights flights
	losses  atomic.Uint64 // see PossibleLosses
	foreign index.Foreign

	phase atomic.Pointer[phase] // never nil
}

// phase is the readiness of a Bus between two changes.
type phase struct {
	session *session      // nil while no session accepts writes
	err     error         // why the bus is not ready; nil if it is ready
	over    chan struct{} // closed at the next change
}

// Open returns a Bus that connects in the background. [Bus.Ready] reports the progress.
// Open returns an error only for invalid options.
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
		opts: o, client: client, log: o.Logger, metrics: newMetrics(o.Registerer, client.Fetches),
		probeNow: make(chan struct{}, 1), slots: make(chan struct{}, o.MaxInFlight),
	}
	b.phase.Store(&phase{err: errors.New("not connected yet"), over: make(chan struct{})})
	b.stored = o.stored(client)
	b.topics = o.topics(client, b.stored, func() { b.losses.Add(1) })
	if b.produce = o.produce; b.produce == nil {
		b.produce = client.Produce
	}
	ctx, stop := context.WithCancelCause(context.Background())
	b.ctx, b.stop = ctx, func() { stop(errStopped) }
	b.workers.Go(b.supervise)
	b.workers.Go(func() {
		wait.UntilWithContext(b.ctx, func(context.Context) { b.sweep(time.Now()) }, max(min(o.AckTimeout/8, sweepEvery), time.Millisecond))
	})
	return b, nil
}

// newID returns a unique session ID.
func newID() string { return strings.ToLower(cryptorand.Text()[:16]) }

const (
	minRetry     = 200 * time.Millisecond // between two takeover attempts
	maxRetry     = 5 * time.Second
	probeEvery   = time.Second
	probeTimeout = 4 * time.Second // for one response; a probe that calls [Bus.reachesAny] takes up to twice as long
)

// supervise runs one session after another until Close, or until another writer takes over.
func (b *Bus) supervise() {
	previous, pause := broker.NoProducer, minRetry
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
			err = context.Cause(s.ctx)
		}
		switch {
		case b.ctx.Err() != nil:
			return
		case errors.Is(err, publish.ErrGone), failure.KindOf(err) == failure.Fenced:
			if !errors.Is(err, publish.ErrGone) {
				err = fmt.Errorf("%w: %w", publish.ErrGone, err)
			}
			err = fmt.Errorf("another forwarder took over%s; run only one forwarder per KUBERELAY_CLUSTER_NAME and per KUBERELAY_KAFKA_TRANSACTIONAL_ID, or set KUBERELAY_LEADER_ELECTION=true on all of them: %w", b.whoWrites(), err)
			b.log.Error("another writer took over", "err", err)
			b.set(nil, err)
			return
		case errors.Is(err, errRenew):
			b.log.Info("renewing the session", "reason", err)
			b.set(nil, err)
			continue // without a pause, because the next session is not due for renewal
		case failure.KindOf(err) == failure.Denied:
			err = fmt.Errorf("%w: %w", ErrMisconfigured, err)
		}
		b.set(nil, err)
		b.log.Warn("not writing to Kafka, retrying", "err", err)
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
			return
		}
		pause = min(2*pause, maxRetry)
	}
}

// watch blocks until the session ends. Until then, it regularly probes the brokers and the topics,
// and updates the state that Ready reports.
func (b *Bus) watch(s *session) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-s.ctx.Done():
			b.set(nil, context.Cause(s.ctx))
			return
		case <-b.probeNow:
		case <-ticker.C:
		}
		if s.isExpired() {
			s.end(errRenew)
			continue
		}
		b.openUnseen(s, turn)
		topic := s.topicToProbe(turn)
		err := b.probe(s, topic)
		switch {
		case s.ctx.Err() != nil:
		case errors.Is(err, errOtherMarker):
			s.end(err)
		case errors.Is(err, broker.ErrNoTopic):
			s.end(topicLost(topic, err))
		case err != nil && !b.reachesAny(s):
			b.set(s, errors.Join(err, s.failure()))
		default:
			b.set(s, nil) // even if a partition has no leader: the others continue
		}
	}
}

// probe returns an error if no broker responds for the topic. For the checkpoint topic, it also returns
// errOtherMarker if another writer might have taken over.
func (b *Bus) probe(s *session, topic string) error {
	ctx, cancel := context.WithTimeout(s.ctx, min(b.opts.AckTimeout, probeTimeout))
	defer cancel()
	if topic != b.opts.CheckpointTopic {
		return b.client.Reach(ctx, topic)
	}
	end, err := b.client.End(ctx, topic, 0)
	if err != nil {
		return err
	}
	return b.findOtherWriter(ctx, s, end)
}

// reachesAny reports whether a broker responds for any topic. watch calls it after one topic did
// not respond, because that topic alone might have a problem.
func (b *Bus) reachesAny(s *session) bool {
	ctx, cancel := context.WithTimeout(s.ctx, min(b.opts.AckTimeout, probeTimeout))
	defer cancel()
	topics := s.allTopics()
	rand.Shuffle(len(topics), func(i, j int) { topics[i], topics[j] = topics[j], topics[i] })
	err := broker.Each(ctx, len(topics), func(ctx context.Context, i int) error {
		if b.client.Reach(ctx, topics[i]) == nil {
			return errReached // cancels the other calls
		}
		return nil
	})
	return errors.Is(err, errReached)
}

var errReached = errors.New("a broker responded")

func (b *Bus) probeSoon() {
	select {
	case b.probeNow <- struct{}{}:
	default:
	}
}

// set updates the state that Ready reports.
func (b *Bus) set(s *session, err error) {
	before := b.phase.Swap(&phase{s, err, make(chan struct{})})
	close(before.over)
	ready := 0.0
	if err == nil {
		ready = 1
	}
	b.metrics.ready.Set(ready)
}

func (b *Bus) current() (*session, error) {
	is := b.phase.Load()
	return is.session, is.err
}

// Ready implements [publish.Publisher]. It returns nil while this process is the writer and
// the brokers respond.
func (b *Bus) Ready() error {
	return b.phase.Load().err
}

// Wait blocks until the bus is ready, or returns an error if ctx ends or the bus is closed. It
// returns early with an error that a retry cannot fix: [ErrMisconfigured] or [publish.ErrGone].
func (b *Bus) Wait(ctx context.Context) error {
	for {
		is := b.phase.Load()
		err := is.err
		if err == nil || errors.Is(err, ErrMisconfigured) || errors.Is(err, publish.ErrGone) {
			return err
		}
		select {
		case <-is.over:
		case <-b.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for the bus: %w (%w)", ctx.Err(), err)
		}
	}
}

// PossibleLosses counts the incidents after which the caller's checkpoint might be wrong:
//
//   - The bus created a topic, perhaps in place of one that was deleted with its events.
//   - A topic that the bus opened after the takeover has events.
//   - A takeover found that a topic is missing, that a partition does not match the checkpoint topic, or that
//     the checkpoint topic has entries but no marker for a partition.
//
// If the count grows after the bus was ready, load the checkpoint again.
func (b *Bus) PossibleLosses() uint64 { return b.losses.Load() }

// Risks implements [publish.Bus].
func (b *Bus) Risks() []publish.Risk { return b.topics.Risks() }

// Stream returns "", because on Kafka a claim does not name a stream.
func (b *Bus) Stream() string { return "" }

// closeTimeout bounds the time that Close waits for running completions.
const closeTimeout = 5 * time.Second

// Close implements [publish.Publisher]. When it returns, every completion has been called and has
// returned, unless one takes longer than closeTimeout.
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
