package kafka

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// topic is a topic with its senders, by partition. For the checkpoint topic, only name, senders,
// and markers are set.
type topic struct {
	name    string
	senders []*sender.Sender
	markers []entry        // markers of the session, by partition
	spread  int            // number of partitions that keys are spread over; at most len(senders)
	newest  []atomic.Int64 // the highest offset that the session recorded, by partition; 0 for none
	open    atomic.Bool
}

// addTopic creates the senders of an event topic. The topic is not open yet.
func (s *session) addTopic(name string, partitions int) *topic {
	t := &topic{name: name, senders: make([]*sender.Sender, partitions), markers: make([]entry, partitions), newest: make([]atomic.Int64, partitions), spread: partitions}
	for p := range t.senders {
		t.senders[p] = s.newSender(name, p,
			func(ctx context.Context) error { return s.recorder.AwaitRoom(ctx, p) },
			func(unread int64) { s.recordMarker(t, p, unread) })
	}
	s.partitions.Add(int64(partitions))
	s.mu.Lock()
	s.topics[name] = t
	s.mu.Unlock()
	return t
}

// openTopic returns a topic that accepts writes. If the topic is not open, openTopic starts to open
// it and returns nil. Because the caller might write to the topic, openTopic also discards the
// entries that takeOver found.
func (s *session) openTopic(name string) *topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil && t.open.Load() {
		s.loaded = nil
		return t
	}
	if !s.opening[name] && !s.waited { // Publish can still use a session that has ended
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

// unknownEvery is the number of probes between two inspections of the unseen topics that the checkpoint topic
// does not name. These topics are probably not Kuberelay's, so the inspections are rare.
const unknownEvery = 60

// openUnseen starts to open the unseen topics that are now visible, and forgets those that are not
// Kuberelay's.
func (b *Bus) openUnseen(s *session, turn int) {
	unseen := s.unseenTopics()
	if len(unseen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, min(b.opts.AckTimeout, probeTimeout))
	defer cancel()
	visible, others, err := b.topics.Recheck(ctx, unseen, turn%unknownEvery == 0)
	if err != nil {
		return // watch reports the error
	}
	for _, name := range visible {
		s.openTopic(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range others {
		delete(s.unseen, name)
	}
}
