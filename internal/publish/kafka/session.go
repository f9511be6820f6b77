package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// session is the life of one producer epoch: what it may write to, and what it knows
// to be there. It is made by [Bus.takeOver]. Whatever leaves doubt about what is
// stored ends it, and the next finds out.
type session struct {
	b        *Bus
	id       string // tells its markers from others'
	producer recordbatch.Producer
	started  time.Time

	ctx     context.Context // ends with the session; its cause says why
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup

	index    *index
	recorder *recorder
	looked   int64 // how far partition 0 of the checkpoint topic was searched for another writer's marker; only watch touches it

	mu      sync.Mutex
	topics  map[string]*topic // of events
	opening map[string]bool
	markers map[string]entry // the last marker of each resource, by partition key
	loaded  map[string]entry // by partition key; nil once used or outdated
	failing map[*lane]error
}

// topic is an event topic with its lanes, by partition.
type topic struct {
	name    string
	lanes   []*lane
	markers []int64 // the offsets of the session's markers, by partition
	spread  int     // the partitions that keys are spread over; at most len(lanes)
	open    atomic.Bool
}

var (
	errRenew    = errors.New("the producer's id is to be renewed")
	errWentBack = errors.New("the brokers have lost what they had acknowledged")
	errStopped  = errors.New("the bus is closed")
)

func newSession(b *Bus, producer recordbatch.Producer) *session {
	s := &session{
		b: b, id: newID(), producer: producer, started: wallClock(), index: newIndex(),
		topics: map[string]*topic{}, opening: map[string]bool{}, markers: map[string]entry{}, failing: map[*lane]error{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// end ends the session for a reason, the first of which counts.
func (s *session) end(err error) { s.cancel(err) }

// wait returns when every record of the session is completed, after its end.
func (s *session) wait() { s.workers.Wait() }

// newLane makes a lane and runs it until the session ends.
func (s *session) newLane(topic string, partition int, ready func(context.Context) error) *lane {
	l := &lane{
		topic: topic, partition: partition, produce: s.produce, producer: s.producer,
		codec: s.b.opts.Compression, limit: s.b.opts.BatchBytes, ready: ready, fail: s.end, trouble: s.trouble,
		sent: s.b.metrics.batch, awake: make(chan struct{}, 1), sequence: 0,
	}
	if s.producer.ID < 0 {
		l.sequence = recordbatch.NoSequence
	}
	s.workers.Go(func() { l.run(s.ctx) })
	return l
}

func (s *session) produce(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
	if s.isOld() {
		s.end(errRenew)
		return 0, errRenew
	}
	if err := s.b.opts.permitted(); err != nil {
		s.end(err)
		return 0, err
	}
	return s.b.produce(ctx, topic, partition, batch)
}

// renewAfter is how old a session gets. Brokers forget a producer in a partition where
// it has not written for a day (producer.id.expiration.ms), and then refuse nobody
// there for its sake; and its transactional id after a week without InitProducerID
// (transactional.id.expiration.ms). A new session does that, and writes to every
// partition.
const renewAfter = 12 * time.Hour

// isOld goes by the wall clock, so that it is also told by a process that was stopped,
// or whose machine slept, while another became the writer.
func (s *session) isOld() bool {
	return s.producer.ID >= 0 && wallClock().Sub(s.started) > renewAfter
}

// wallClock has no monotonic part, which stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// trouble notes whether a lane's last attempt failed.
func (s *session) trouble(l *lane, err error) {
	s.mu.Lock()
	_, failed := s.failing[l]
	if err == nil {
		delete(s.failing, l)
	} else {
		s.failing[l] = err
	}
	s.mu.Unlock()
	switch {
	case err != nil && !failed:
		s.b.log.Warn("a batch was not acknowledged; it will be sent again until it is", "topic", l.topic, "partition", l.partition, "err", err)
		s.b.lookSoon()
	case err == nil && failed:
		s.b.log.Info("batches are acknowledged again", "topic", l.topic, "partition", l.partition)
		s.b.lookSoon()
	}
}

// failures gives the topics of lanes that get no acknowledgements, each with the error of
// one of them.
func (s *session) failures() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := map[string]error{}
	for l, err := range s.failing {
		failures[l.topic] = fmt.Errorf("no acknowledgement from partition %d of topic %q: %w", l.partition, l.topic, err)
	}
	return failures
}

// failure is one of the failures, nil if there is none.
func (s *session) failure() error {
	for _, err := range s.failures() {
		return err
	}
	return nil
}

// addTopic makes the lanes of an event topic. It is not open yet.
func (s *session) addTopic(name string, partitions int) *topic {
	t := &topic{name: name, lanes: make([]*lane, partitions), markers: make([]int64, partitions), spread: partitions}
	for p := range t.lanes {
		t.lanes[p] = s.newLane(name, p, s.recorder.hasRoom)
	}
	s.mu.Lock()
	s.topics[name] = t
	s.mu.Unlock()
	return t
}

// mark writes the session's marker into every partition that the lanes write to, and
// gives their offsets. It blocks until all are stored.
func (s *session) mark(ctx context.Context, lanes []*lane) ([]int64, error) {
	type result struct {
		partition int
		offset    int64
		err       error
	}
	results := make(chan result, len(lanes))
	for i, l := range lanes {
		m, err := event.Builder{Cluster: s.b.opts.Cluster}.WriterStarted(s.b.opts.Writer, s.id, l.topic, l.partition, time.Now())
		if err != nil {
			return nil, err
		}
		record, err := s.b.encode(m)
		if err != nil {
			return nil, err
		}
		l.add(&item{record, func(offset int64, err error) { results <- result{i, offset, err} }})
	}
	offsets := make([]int64, len(lanes))
	for range lanes {
		select {
		case r := <-results:
			if r.err != nil {
				return nil, fmt.Errorf("write the marker of partition %d of topic %q: %w", lanes[r.partition].partition, lanes[r.partition].topic, r.err)
			}
			offsets[r.partition] = r.offset
			failpoint.Hit("taking-over")
		case <-ctx.Done():
			return nil, errors.Join(s.failure(), ctx.Err())
		}
	}
	return offsets, nil
}

// openTopic gives a topic to write to, nil if it has to be opened first, which then
// begins. What is written to it outdates what was loaded.
func (s *session) openTopic(name string) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil && t.open.Load() {
		s.loaded = nil
		return t
	}
	if !s.opening[name] {
		s.opening[name] = true
		s.workers.Go(func() {
			if err := s.create(s.ctx, name); err != nil && s.ctx.Err() == nil {
				s.b.log.Warn("a topic cannot be opened; will be tried again", "topic", name, "err", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.opening, name)
		})
	}
	return nil
}

// create opens an event topic that did not exist when the session began, or that has
// come since.
func (s *session) create(ctx context.Context, name string) error {
	found, _, err := s.b.ensure(ctx, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	t := s.topics[name]
	s.mu.Unlock()
	if t == nil {
		t = s.addTopic(name, found.Partitions)
	}
	if t.markers, err = s.mark(ctx, t.lanes); err != nil {
		return err
	}
	loaded := map[string]entry{}
	if err := s.adopt(ctx, t, topicState{}, loaded); err != nil {
		return err
	}
	s.remember(loaded)
	if err := s.flush(ctx); err != nil {
		return err
	}
	t.open.Store(true)
	return nil
}

// flushLimit is how long it may take until all is recorded: a topic may have gone.
const flushLimit = 2 * time.Minute

// flush blocks until all that was put before is recorded, or the session ends, or ctx.
func (s *session) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushLimit, fmt.Errorf("the checkpoint topic does not take its records: %w", context.DeadlineExceeded))
	defer cancel()
	ctx, release := s.bound(ctx)
	defer release()
	return s.recorder.flush(ctx)
}

// bound gives a context that ends with the session too.
func (s *session) bound(ctx context.Context) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })
	return ctx, func() { stop(); end(nil) }
}

// errOf makes an error of why the session has ended.
func (s *session) errOf() error {
	err := context.Cause(s.ctx)
	switch {
	case err == nil, errors.Is(err, publish.ErrGone):
		return err
	case broker.KindOf(err) == broker.Fenced:
		return fmt.Errorf("%w: %w", publish.ErrGone, err)
	}
	return err
}

// setMarker notes the last marker of a resource.
func (s *session) setMarker(partitionKey string, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markers[partitionKey] = e
}

// marker gives the last marker of a resource.
func (s *session) marker(partitionKey string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markers[partitionKey]
}

// takeLoaded gives what the bus held when the session began, once, and only if
// nothing has been written since.
func (s *session) takeLoaded() map[string]entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := s.loaded
	s.loaded = nil
	return loaded
}

// topicOfTurn gives the topics that the session writes to, one after the other.
func (s *session) topicOfTurn(turn int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := append(slices.Sorted(maps.Keys(s.topics)), s.b.opts.CheckpointTopic)
	return names[turn%len(names)]
}

// opened gives the topics that are open.
func (s *session) opened() []*topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*topic
	for _, t := range s.topics {
		if t.open.Load() {
			all = append(all, t)
		}
	}
	return all
}
