package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recorder"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

type entry = record.Entry

// session is the lifetime of one producer epoch. A session holds the topics that the bus writes to,
// and their known contents. [Bus.takeOver] creates it. The session ends at an error after which
// only the next session can determine which records are stored.
type session struct {
	b        *Bus
	id       string // identifies the session's markers
	producer recordbatch.Producer
	started  time.Time // has the readings of both clocks, see isExpired

	ctx     context.Context // ends with the session or with Close; its cause is the reason
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup // done when the session has ended and all its records are completed; see wait

	index      *index.Index
	checkpoint *topic // the checkpoint topic, which recorder writes
	recorder   *recorder.Recorder
	partitions atomic.Int64 // number of partitions of all event topics
	searched   int64        // before this offset, partition 0 of the checkpoint topic has no marker of a later writer; used only by takeOver and watch

	mu      sync.Mutex
	waited  bool              // wait was called, so no worker may start
	topics  map[string]*topic // event topics, by name
	opening map[string]bool
	unseen  map[string]bool  // topics that could not be inspected; true if the checkpoint topic names the topic
	markers map[string]entry // the last snapshot marker of each resource, and the claim, by partition key
	loaded  map[string]entry // entries that takeOver found, by partition key; nil once used or outdated
	failing map[*sender.Sender]error
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
	s.ctx, s.cancel = context.WithCancelCause(b.ctx)
	return s
}

// end ends the session. Only the first reason counts.
func (s *session) end(err error) { s.cancel(maybeStored{err}) }

// wait blocks until the workers of an ended session have returned.
func (s *session) wait() {
	s.mu.Lock()
	s.waited = true
	s.mu.Unlock()
	s.workers.Wait()
}

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
	if err := s.b.opts.Permit.Check(); err != nil {
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

// failures returns one error for each topic that has a partition without acknowledgements.
func (s *session) failures() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	failures := map[string]error{}
	for l, err := range s.failing {
		failures[l.Topic] = fmt.Errorf("no acknowledgement from partition %d of topic %q: %w", l.Partition, l.Topic, err)
	}
	return failures
}

// failure returns one of the failures, or nil if there is none.
func (s *session) failure() error {
	for _, err := range s.failures() {
		return err
	}
	return nil
}

// flushLimit bounds flush, because the checkpoint topic might no longer exist.
const flushLimit = 2 * time.Minute

// flush blocks until all entries that the recorder got before the call are stored. It returns an
// error if the session or ctx ends first, or after flushLimit.
func (s *session) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, flushLimit, fmt.Errorf("no acknowledgement from the checkpoint topic: %w", context.DeadlineExceeded))
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

// takeLoaded returns the entries that takeOver found. It returns nil from the second call on, and
// after openTopic returned a topic for writing.
func (s *session) takeLoaded() map[string]entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := s.loaded
	s.loaded = nil
	return loaded
}

// setMarker sets the last marker with a partition key: a snapshot marker of a resource, or the
// claim.
func (s *session) setMarker(partitionKey string, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markers[partitionKey] = e
}

// marker returns the last marker with a partition key, or the zero value if there is none.
func (s *session) marker(partitionKey string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markers[partitionKey]
}

// stallFraction determines when a batch counts as stalled: after [Options.AckTimeout] /
// stallFraction without an acknowledgement. Its partition then probably has no leader, or the
// leader hangs.
const stallFraction = 4

// share returns the part of the in-flight limit that one partition may use. With this limit, a few
// stalled partitions leave room for the others.
func (s *session) share() sender.Share {
	part := 1
	switch n := s.partitions.Load(); {
	case n >= 4:
		part = 4
	case n >= 2:
		part = 2
	}
	return sender.Share{Events: max(1, s.b.opts.MaxInFlight/part), Bytes: max(1, s.b.opts.MaxBytesInFlight/part)}
}

// maxSessionAge is the age at which a session is renewed. Brokers forget a producer in a
// partition after a day without writes (producer.id.expiration.ms), and then no longer
// reject older epochs there. They forget its transactional ID after a week without
// InitProducerID (transactional.id.expiration.ms). A new session calls InitProducerID and
// writes to every partition.
const maxSessionAge = 12 * time.Hour

// isExpired reports whether the session is due for renewal. The age of the session includes the
// time during which the process was suspended or its machine slept, because another process might
// have become the writer in that time. A session without a producer ID never expires.
func (s *session) isExpired() bool {
	now := time.Now()
	return s.producer.ID >= 0 && isPast(maxSessionAge, now.Sub(s.started), now.Round(0).Sub(s.started.Round(0)))
}

// clockStep is the tolerated backward step of the wall clock, for example by NTP.
const clockStep = time.Minute

// isPast reports whether more time than limit might have passed. monotonic and wall are the elapsed
// times of the two clocks. The monotonic clock stops while the machine sleeps, and the wall clock
// can be set. If the wall clock was set back by more than clockStep, the length of a sleep is
// unknown, so isPast returns true.
func isPast(limit, monotonic, wall time.Duration) bool {
	return monotonic > limit || wall > limit || wall < monotonic-clockStep
}

// errOtherMarker ends a session that finds the marker of another writer. The marker does not prove
// a takeover, because any client with access to the topic can write one. The brokers decide: after
// a takeover by another writer, they reject the next session.
var errOtherMarker = errors.New("the checkpoint topic has the marker of another writer")

// findOtherWriter returns errOtherMarker if another writer might have taken over. An idle writer
// needs this check, because brokers report a takeover only in response to a write.
func (b *Bus) findOtherWriter(ctx context.Context, s *session, end int64) error {
	if s.producer.ID < 0 || s.checkpoint.senders[0].End() >= end {
		return nil // the last record is from this session, so nobody else has taken over
	}
	taken := false
	writerKey := event.WriterPartitionKey(b.opts.Cluster, b.opts.CheckpointTopic, 0)
	err := b.stored.Read(ctx, b.opts.CheckpointTopic, 0, s.searched, end, func(r broker.Record) error {
		if string(r.Key) == writerKey {
			e, ok := b.stored.EntryOf(r, b.opts.CheckpointTopic, 0)
			taken = taken || ok && e.Type == event.WriterStarted
		}
		return nil
	})
	if taken {
		return errOtherMarker
	}
	if err == nil {
		s.searched = end
	}
	return err
}
