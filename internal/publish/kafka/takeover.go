package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recorder"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// takeOver makes this process the writer, in the four steps of the package comment, and determines
// what is stored. previous is the producer of the previous session. If previous has an ID, the
// brokers reject the takeover when another writer has taken over since then. Otherwise, takeOver
// takes over from any writer. Pass the returned producer to the next call, even after an error,
// because its epoch might have been used.
func (b *Bus) takeOver(ctx context.Context, previous recordbatch.Producer) (_ *session, producer recordbatch.Producer, err error) {
	b.opts.Takeover.Begin()
	defer b.opts.Takeover.End()
	defer b.reportFailing()()
	producer = broker.NoProducer
	if previous.ID < 0 { // if previous has an ID, the brokers reject a writer that was replaced
		if err := b.admit(ctx); err != nil {
			return nil, producer, err
		}
	}
	if err := b.opts.Permit.Check(); err != nil {
		return nil, previous, err
	}
	if b.opts.Idempotent {
		asking, cancel := context.WithTimeout(ctx, min(b.opts.AckTimeout, probeTimeout)) // short, so that Ready gets the error soon
		producer, err = b.client.InitProducerID(asking, b.opts.TransactionalID, previous)
		cancel()
		switch {
		case err != nil && previous.ID >= 0 && failure.KindOf(err) == failure.OutOfOrder:
			// The brokers forgot the producer, so it is unknown whether another writer took over
			// since then.
			return nil, previous, fmt.Errorf("%w: renew the producer ID: %w", publish.ErrGone, err)
		case err != nil:
			return nil, previous, fmt.Errorf("take over as the writer: %w", err)
		}
	}
	s := newSession(b, producer)
	defer func() {
		if err != nil {
			s.end(err)
			s.wait()
		}
	}()
	defer s.probeTopics()()
	asking, cancel := context.WithTimeout(ctx, 3*b.opts.AckTimeout)
	defer cancel()
	checkpoint, _, err := b.topics.Ensure(asking, b.opts.CheckpointTopic)
	if err != nil {
		return nil, producer, err
	}
	s.checkpoint = &topic{name: checkpoint.Name, markers: make([]entry, checkpoint.Partitions)}
	for p := range checkpoint.Partitions {
		s.checkpoint.senders = append(s.checkpoint.senders, s.newSender(checkpoint.Name, p, nil, nil))
	}
	s.recorder = recorder.New(recorder.Config{
		Cluster: b.opts.Cluster, Session: s.id, Writer: b.opts.Writer, Senders: s.checkpoint.senders, Spread: checkpoint.Partitions, Room: 4 * b.opts.MaxInFlight, Fail: s.end,
	})
	if err := s.mark(asking, s.checkpoint); err != nil {
		return nil, producer, err
	}
	s.searched = s.checkpoint.markers[0].Offset + 1
	recorded, err := s.readCheckpoint(ctx)
	if err != nil {
		return nil, producer, err
	}
	s.recorder.Spread = recorded.Records
	if s.loaded, err = s.takeTopics(ctx, recorded); err != nil {
		return nil, producer, err
	}
	s.remember(s.loaded)
	for _, t := range s.topics {
		t.open.Store(true)
	}
	return s, producer, nil
}

// takeTopics fences older epochs in the event topics and determines what the topics hold.
func (s *session) takeTopics(ctx context.Context, recorded *takeover.Checkpoint) (map[string]entry, error) {
	asking, cancel := context.WithTimeout(ctx, 3*s.b.opts.AckTimeout)
	defer cancel()
	topics, unseen, err := s.b.topics.Discover(asking, recorded)
	if err != nil {
		return nil, err
	}
	s.unseen = unseen
	for _, isRecorded := range unseen {
		if isRecorded {
			s.b.losses.Add(1) // the topic might have been deleted
		}
	}
	var all []recovery
	var taken []*topic
	for _, found := range topics {
		t := s.addTopic(found.Name, found.Partitions)
		taken = append(taken, t)
		all = append(all, recovery{t, recorded.Take(found.Name, found.Partitions)})
	}
	if err := s.mark(asking, taken...); err != nil {
		return nil, err
	}
	recorded.SetAside(s.recorder.Write)
	if err := s.recoverTopics(ctx, all); err != nil {
		return nil, err
	}
	loaded := map[string]entry{}
	for _, a := range all {
		maps.Copy(loaded, a.known.Entries())
	}
	return loaded, nil
}

// probeTopics probes topics that do not acknowledge, until stop is called. It ends the session if
// one of them no longer exists, because a topic can be deleted right after the takeover found it. The
// next session recreates the topic. After the takeover, [Bus.watch] probes the topics.
func (s *session) probeTopics() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		ticker := time.NewTicker(probeEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			for topic, failure := range s.failures() {
				s.b.set(nil, failure)
				asking, cancel := context.WithTimeout(ctx, probeTimeout)
				if _, err := s.b.client.Offsets(asking, topic); errors.Is(err, broker.ErrNoTopic) {
					s.end(topicLost(topic, err))
				}
				cancel()
			}
		}
	})
	return func() { cancel(); looking.Wait() }
}

// reportFailing reports the requests of a takeover that keep failing, in the log and with the state that
// Ready returns, until stop is called. A takeover repeats its reads without a limit, because it needs them.
func (b *Bus) reportFailing() (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	var looking sync.WaitGroup
	before, failing, logged := b.Ready(), false, false
	looking.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			err := b.client.Failing()
			switch {
			case err != nil:
				b.set(nil, err)
				if !logged {
					b.log.Warn("not writing to Kafka, retrying", "err", err)
				}
				failing, logged = true, true
			case failing:
				b.set(nil, before)
				failing = false
			}
		}, probeEvery)
	})
	return func() { cancel(); looking.Wait() }
}

// readCheckpoint reads the checkpoint topic up to the session's markers.
func (s *session) readCheckpoint(ctx context.Context) (*takeover.Checkpoint, error) {
	recorded := takeover.NewCheckpoint(len(s.checkpoint.markers))
	all, ctx := errgroup.WithContext(ctx)
	for p, marker := range s.checkpoint.markers {
		all.Go(func() error {
			return s.b.stored.ReadCheckpoint(ctx, s.b.opts.Takeover, p, marker.Offset, func(r broker.Record, c record.Checkpoint) error {
				failpoint.Hit("loading")
				recorded.Read(p, r.Offset, string(r.Key), c)
				return nil
			})
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	recorded.Finish()
	return recorded, nil
}

// remember adds the loaded entries to the session's index and markers.
func (s *session) remember(loaded map[string]entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range loaded {
		if e.Type != "" {
			s.markers[key] = e
		} else {
			s.index.Found(index.Of([]byte(key)), e.Position())
		}
	}
}

// topicLost returns the reason to end a session whose topic no longer exists.
func topicLost(name string, err error) error {
	return fmt.Errorf("%w: topic %q: %w", sender.ErrDataLost, name, err)
}
