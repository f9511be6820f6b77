package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// takeOver makes this process the writer, in the four steps of the package comment, and
// finds out what is stored. previous is the producer of the previous session. With it, the
// brokers reject the takeover if another writer took over since. Without an ID, it takes
// over from any writer. Pass the returned producer to the next call, also after an error:
// its epoch may have been used.
func (b *Bus) takeOver(ctx context.Context, previous recordbatch.Producer) (_ *session, producer recordbatch.Producer, err error) {
	b.opts.Takeover.Begin()
	defer b.opts.Takeover.End()
	producer = recordbatch.Producer{ID: -1, Epoch: -1}
	if previous.ID < 0 { // otherwise the brokers reject a writer that was replaced
		if err := b.admit(ctx); err != nil {
			return nil, producer, err
		}
	}
	if err := b.opts.permitted(); err != nil {
		return nil, previous, err
	}
	if b.opts.Idempotent {
		asking, cancel := context.WithTimeout(ctx, min(b.opts.AckTimeout, probeTimeout)) // short, so that Ready gets the error soon
		producer, err = b.client.InitProducerID(asking, b.opts.TransactionalID, previous)
		cancel()
		switch {
		case err != nil && previous.ID >= 0 && broker.KindOf(err) == broker.OutOfOrder:
			// The brokers forgot the producer, so it is unknown whether another writer took
			// over since.
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
	checkpoint, _, err := b.ensure(asking, b.opts.CheckpointTopic)
	if err != nil {
		return nil, producer, err
	}
	s.checkpoint = &topic{name: checkpoint.Name, markers: make([]entry, checkpoint.Partitions)}
	for p := range checkpoint.Partitions {
		s.checkpoint.senders = append(s.checkpoint.senders, s.newSender(checkpoint.Name, p, nil))
	}
	s.recorder = &recorder{
		cluster: b.opts.Cluster, senders: s.checkpoint.senders, spread: checkpoint.Partitions, room: 4 * b.opts.MaxInFlight, fail: s.end,
		counts: make([]recordCounts, checkpoint.Partitions),
	}
	if err := s.mark(asking, s.checkpoint); err != nil {
		return nil, producer, err
	}
	s.searched = s.checkpoint.markers[0].Offset + 1
	states, parts, err := s.readCheckpoint(ctx)
	if err != nil {
		return nil, producer, err
	}
	s.recorder.spread = recordSpread(states, parts)
	if s.loaded, err = s.takeTopics(ctx, states, parts); err != nil {
		return nil, producer, err
	}
	s.remember(s.loaded)
	for _, t := range s.topics {
		t.open.Store(true)
	}
	return s, producer, nil
}

// takeTopics fences the event topics and finds out what they hold, given their states and
// the partitions of the checkpoint topic.
func (s *session) takeTopics(ctx context.Context, states map[string]topicState, parts []*checkpointPart) (map[string]entry, error) {
	asking, cancel := context.WithTimeout(ctx, 3*s.b.opts.AckTimeout)
	defer cancel()
	entries := map[string]map[string]entry{} // by topic
	for name := range states {
		entries[name] = map[string]entry{}
	}
	for key, e := range s.merge(states, parts) {
		if entries[e.Topic] == nil {
			entries[e.Topic] = map[string]entry{}
		}
		entries[e.Topic][key] = e
	}
	topics, unseen, err := s.b.eventTopics(asking, entries)
	if err != nil {
		return nil, err
	}
	s.unseen = unseen
	var all []*recovery
	var taken []*topic
	for _, found := range topics {
		t := s.addTopic(found.Name, found.Partitions)
		taken = append(taken, t)
		all = append(all, &recovery{t: t, state: states[t.name], entries: entries[t.name], erased: s.erasedFrom(t.name, parts)})
		delete(entries, t.name)
	}
	if err := s.mark(asking, taken...); err != nil {
		return nil, err
	}
	s.setAside(entries, states)
	if err := s.recoverTopics(ctx, all); err != nil {
		return nil, err
	}
	loaded := map[string]entry{}
	for _, a := range all {
		maps.Copy(loaded, a.entries)
	}
	return loaded, nil
}

// setAside removes the entries of topics that are not in the session: they do not exist,
// are not visible, or are not configured. If such a topic becomes visible again, it is read
// from its start. The entry of a partition's marker is removed before the others. Otherwise
// a crash in between would leave a partition that seems to be recorded up to its marker.
func (s *session) setAside(entries map[string]map[string]entry, states map[string]topicState) {
	for name, of := range entries {
		if len(of) == 0 && states[name].Partitions == 0 {
			continue
		}
		s.recorder.state(topicState{Topic: name, Records: s.recorder.spread, Session: s.id, Writer: s.b.opts.Writer})
		for _, isMarker := range []bool{true, false} {
			for key, e := range of {
				if (e.Type == event.WriterStarted) == isMarker {
					s.recorder.forget([]byte(key), e.Partition)
				}
			}
		}
	}
}

// probeTopics ends the session if a topic without acknowledgements was deleted, until stop
// is called. A topic can be deleted right after the takeover found it, and the next session
// recreates it. Once the session is the current one, [Bus.watch] does this.
func (s *session) probeTopics() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for sleep(ctx, probeEvery) == nil {
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

// readCheckpoint reads the checkpoint topic up to the session's markers. It returns the
// topic states by name, and the content of each partition.
func (s *session) readCheckpoint(ctx context.Context) (map[string]topicState, []*checkpointPart, error) {
	var mu sync.Mutex
	states, parts := map[string]topicState{}, make([]*checkpointPart, len(s.checkpoint.markers))
	all, ctx := errgroup.WithContext(ctx)
	for p, marker := range s.checkpoint.markers {
		parts[p] = &checkpointPart{map[string]entry{}, map[string]erasedEntry{}}
		all.Go(func() error {
			return s.b.readRecords(ctx, p, marker.Offset, func(offset int64, key []byte, e entry) error {
				failpoint.Hit("loading")
				parts[p].read(offset, string(key), e)
				return nil
			}, func(t topicState) {
				mu.Lock()
				defer mu.Unlock()
				states[t.Topic] = t
			})
		})
	}
	return states, parts, all.Wait()
}

// merge returns the entries of all partitions. If several partitions have an entry of a
// key, the one in the partition that a forwarder uses for the key counts.
func (s *session) merge(states map[string]topicState, parts []*checkpointPart) map[string]entry {
	all := map[string]entry{}
	for home, part := range parts {
		for key, e := range part.entries {
			spread := states[e.Topic].Partitions
			isOurs := s.recorder.home(e.Partition) == home &&
				(e.Type == event.WriterStarted || spread > 0 && binding.Partition([]byte(key), spread) == e.Partition)
			if _, twice := all[key]; !twice || isOurs {
				all[key] = e
			}
		}
	}
	return all
}

// readRecords reads one partition of the checkpoint topic up to an offset and yields the
// entries of the cluster with the offsets of their records. It yields the zero entry for a key
// whose entry was removed.
func (b *Bus) readRecords(ctx context.Context, partition int, until int64, yield func(offset int64, key []byte, e entry) error, state func(topicState)) error {
	err := b.readCounted(ctx, b.opts.Takeover, b.opts.CheckpointTopic, partition, 0, until, func(r broker.Record) error {
		switch c := b.checkpoint(r, partition); c.Kind {
		case record.OfTopic:
			state(c.State)
		case record.OfEvent, record.Removed:
			return yield(r.Offset, r.Key, c.Entry)
		case record.Ignored:
			// If an invalid record replaced an entry, the event is found in the event topic or
			// published again.
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read partition %d of the checkpoint topic %q: %w", partition, b.opts.CheckpointTopic, err)
	}
	return nil
}

// remember adds what is stored to the session's index and markers.
func (s *session) remember(loaded map[string]entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range loaded {
		if e.Type != "" {
			s.markers[key] = e
		} else {
			s.index.found(identify([]byte(key)), e.Position())
		}
	}
}
