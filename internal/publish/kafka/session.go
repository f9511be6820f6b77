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

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recorder"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// session is the lifetime of one producer epoch. It has the topics that the bus writes to, and
// their known contents. [Bus.takeOver] creates it. An error ends the session if it leaves unknown
// which records are stored. The next session determines this.
type session struct {
	b        *Bus
	id       string // identifies the session's markers
	producer recordbatch.Producer
	started  time.Time // has the readings of both clocks, see isExpired

	ctx     context.Context // ends with the session; its cause is the reason
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup

	index      *index.Index
	checkpoint *topic // the checkpoint topic, which recorder writes
	recorder   *recorder.Recorder
	partitions atomic.Int64 // number of partitions of all event topics
	searched   int64        // offset in partition 0 of the checkpoint topic up to which watch has found no other writer's marker; used only by watch

	mu      sync.Mutex
	topics  map[string]*topic // event topics, by name
	opening map[string]bool
	unseen  map[string]bool  // topics that could not be inspected; true if the checkpoint topic names the topic
	markers map[string]entry // the last snapshot marker of each resource, and the claim, by partition key
	loaded  map[string]entry // entries that takeOver found, by partition key; nil once used or outdated
	failing map[*sender.Sender]error
}

// topic is a topic with its senders, by partition. The checkpoint topic does not use spread and
// newest.
type topic struct {
	name    string
	senders []*sender.Sender
	markers []entry        // markers of the session, by partition
	spread  int            // number of partitions that keys are spread over; at most len(senders)
	newest  []atomic.Int64 // the highest offset that the session recorded, by partition; 0 for none
	open    atomic.Bool
}

var (
	errRenew   = errors.New("the session is due for renewal")
	errStopped = errors.New("the bus is closed")
)

func newSession(b *Bus, producer recordbatch.Producer) *session {
	s := &session{
		b: b, id: newID(), producer: producer, started: time.Now(), index: index.New(),
		topics: map[string]*topic{}, opening: map[string]bool{}, markers: map[string]entry{}, failing: map[*sender.Sender]error{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// end ends the session. Only the first reason counts.
func (s *session) end(err error) { s.cancel(maybeStored{err}) }

// wait blocks until the session has ended and all its records are completed.
func (s *session) wait() { s.workers.Wait() }

// newSender creates a sender and runs it until the session ends. ready and marker are as in
// [sender.Config].
func (s *session) newSender(topic string, partition int, ready func(context.Context) error, marker func(unread int64)) *sender.Sender {
	l := sender.New(sender.Config{
		Topic: topic, Partition: partition, Produce: s.produce, Producer: s.producer, Codec: s.b.opts.Compression, Limit: s.b.opts.BatchBytes,
		Ready: ready, Stall: s.b.opts.AckTimeout / stallFraction, Fail: s.end, Attempted: s.attempted, Sent: s.b.metrics.batch, Marker: marker,
	})
	s.workers.Go(func() { l.Run(s.ctx) })
	return l
}

func (s *session) produce(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
	if s.isExpired() {
		s.end(errRenew)
		return 0, errRenew
	}
	if err := s.b.opts.permitted(); err != nil {
		s.end(err)
		return 0, err
	}
	return s.b.produce(ctx, topic, partition, batch)
}

// attempted records whether the last attempt of a sender failed.
func (s *session) attempted(l *sender.Sender, err error) {
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
		s.b.log.Warn("batch not acknowledged, resending", "topic", l.Topic, "partition", l.Partition, "err", err)
		s.b.probeSoon()
	case err == nil && failed:
		s.b.log.Info("batches are acknowledged again", "topic", l.Topic, "partition", l.Partition)
		s.b.probeSoon()
	}
}

// failures returns the topics with senders that receive no acknowledgements. The value is an error
// of one of these senders.
func (s *session) failures() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := map[string]error{}
	for l, err := range s.failing {
		failures[l.Topic] = fmt.Errorf("no acknowledgement from partition %d of topic %q: %w", l.Partition, l.Topic, err)
	}
	return failures
}

// failure returns one of the failures, nil for none.
func (s *session) failure() error {
	for _, err := range s.failures() {
		return err
	}
	return nil
}

// addTopic creates the senders of an event topic. The topic is not open yet.
func (s *session) addTopic(name string, partitions int) *topic {
	t := &topic{name: name, senders: make([]*sender.Sender, partitions), markers: make([]entry, partitions), newest: make([]atomic.Int64, partitions), spread: partitions}
	for p := range t.senders {
		t.senders[p] = s.newSender(name, p,
			func(ctx context.Context) error { return s.recorder.HasRoom(ctx, p) },
			func(unread int64) { s.recordMarker(t, p, unread) })
	}
	s.partitions.Add(int64(partitions))
	s.mu.Lock()
	s.topics[name] = t
	s.mu.Unlock()
	return t
}

// openTopic returns a topic that accepts writes. If the topic is not open, openTopic starts to open
// it and returns nil. Because the caller may write to the topic, openTopic also discards the
// entries that takeOver found.
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
				s.b.log.Warn("cannot open a topic, retrying", "topic", name, "err", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.opening, name)
		})
	}
	return nil
}

// create opens an event topic that did not exist, or was not visible, when the session
// started.
func (s *session) create(ctx context.Context, name string) error {
	found, _, err := s.b.topics.Ensure(ctx, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	t := s.topics[name]
	s.mu.Unlock()
	if t == nil {
		t = s.addTopic(name, found.Partitions)
	}
	if err := s.mark(ctx, t); err != nil {
		return err
	}
	known := takeover.NewTopic(name, len(t.senders), s.recorder.Spread)
	if err := s.recoverTopics(ctx, []recovery{{t, known}}); err != nil {
		return err
	}
	s.remember(known.Entries())
	t.open.Store(true)
	s.mu.Lock()
	delete(s.unseen, name)
	s.mu.Unlock()
	if len(known.Entries()) > 0 {
		s.b.losses.Add(1) // the caller's checkpoint lacks the events of the topic
	}
	return nil
}

// flushLimit bounds flush, because the checkpoint topic may no longer exist.
const flushLimit = 2 * time.Minute

// flush blocks until all entries that were put before the call are stored. It returns an error if
// the session or ctx ends first, or after flushLimit.
func (s *session) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushLimit, fmt.Errorf("the checkpoint topic does not acknowledge its records: %w", context.DeadlineExceeded))
	defer cancel()
	ctx, release := s.bound(ctx)
	defer release()
	return s.recorder.Flush(ctx)
}

// bound returns a context that also ends with the session.
func (s *session) bound(ctx context.Context) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })
	return ctx, func() { stop(); end(nil) }
}

// endError returns the reason why the session ended. Its chain includes [publish.ErrGone] if
// another writer took over.
func (s *session) endError() error {
	err := context.Cause(s.ctx)
	switch {
	case err == nil, errors.Is(err, publish.ErrGone):
		return err
	case failure.KindOf(err) == failure.Fenced:
		return fmt.Errorf("%w: %w", publish.ErrGone, err)
	}
	return err
}

// takeLoaded returns the entries that takeOver found. It returns nil from the second call on, and
// after openTopic returned a topic for writing.
func (s *session) takeLoaded() map[string]entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := s.loaded
	s.loaded = nil
	return loaded
}

// unseenTopics returns the topics that could not be inspected. The value is true if the checkpoint
// topic names the topic.
func (s *session) unseenTopics() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.unseen)
}

// topicToProbe cycles through the topics that the session writes to.
func (s *session) topicToProbe(turn int) string {
	names := s.allTopics()
	return names[turn%len(names)]
}

// allTopics returns the names of the topics that the session writes to.
func (s *session) allTopics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Sorted(maps.Keys(s.topics)), s.b.opts.CheckpointTopic)
}

// opened returns the open event topics.
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
