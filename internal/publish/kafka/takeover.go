package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// takeOver makes this process the writer, in the four steps of the package's comment,
// and finds out what is stored. Previous is the producer of the session before, which
// makes the brokers refuse if another writer has taken over since; without an id it
// takes over whoever writes. The producer is to be the next one's previous, also after a
// failure: its epoch may have been written with.
func (b *Bus) takeOver(ctx context.Context, previous recordbatch.Producer) (_ *session, producer recordbatch.Producer, err error) {
	producer = recordbatch.Producer{ID: -1, Epoch: -1}
	if previous.ID < 0 { // else the brokers refuse if another has taken over since
		if err := b.admit(ctx); err != nil {
			return nil, producer, err
		}
	}
	if err := b.opts.permitted(); err != nil {
		return nil, previous, err
	}
	if b.opts.Idempotent {
		id := b.opts.TransactionalID
		if failpoint.Bug("fence-nobody") {
			id = b.opts.Writer
		}
		asking, cancel := context.WithTimeout(ctx, min(b.opts.AckTimeout, lookLimit)) // so that Ready can say what is wrong
		producer, err = b.client.InitProducerID(asking, id, previous)
		cancel()
		switch {
		case err != nil && previous.ID >= 0 && broker.KindOf(err) == broker.OutOfOrder:
			// The brokers do not know our producer any more, so nobody can say who has
			// taken over since.
			return nil, previous, fmt.Errorf("%w: take over as the writer again: %w", publish.ErrGone, err)
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
	defer s.lookForTopics()()
	asking, cancel := context.WithTimeout(ctx, 3*b.opts.AckTimeout)
	defer cancel()
	checkpoint, _, err := b.ensure(asking, b.opts.CheckpointTopic)
	if err != nil {
		return nil, producer, err
	}
	s.recorder = &recorder{
		cluster: b.opts.Cluster, spread: checkpoint.Partitions, room: 4 * b.opts.MaxInFlight, fail: s.end, counts: make([]recorded, checkpoint.Partitions),
	}
	for p := range checkpoint.Partitions {
		s.recorder.lanes = append(s.recorder.lanes, s.newLane(checkpoint.Name, p, nil))
	}
	topics, err := b.eventTopics(asking)
	if err != nil {
		return nil, producer, err
	}
	for _, t := range topics {
		s.addTopic(t.Name, t.Partitions)
	}
	fences, err := s.fence(asking)
	if err != nil {
		return nil, producer, err
	}
	s.looked = fences[0] + 1
	states, loaded, err := s.readCheckpoint(ctx, fences)
	if err != nil {
		return nil, producer, err
	}
	for _, state := range states {
		if state.Records > 0 {
			s.recorder.spread = min(state.Records, s.recorder.spread)
		}
	}
	for _, t := range s.topics {
		if err := s.adopt(ctx, t, states[t.name], loaded); err != nil {
			return nil, producer, err
		}
	}
	for key, e := range loaded {
		if s.topics[e.Topic] == nil { // it was deleted, with all that was in it
			delete(loaded, key)
			s.recorder.forget([]byte(key), e.Partition)
		}
	}
	s.remember(loaded)
	s.loaded = loaded
	if err := s.flush(ctx); err != nil {
		return nil, producer, err
	}
	for _, t := range s.topics {
		t.open.Store(true)
	}
	return s, producer, nil
}

// lookForTopics looks, until stop is called, whether a topic that acknowledges nothing is
// still there, and ends the session if not: one may be deleted after it was found, and is
// then to be made anew. Once the session is the bus's, [Bus.watch] does that.
func (s *session) lookForTopics() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for sleep(ctx, lookEvery) == nil {
			for topic, failure := range s.failures() {
				s.b.set(nil, failure)
				asking, cancel := context.WithTimeout(ctx, lookLimit)
				if _, err := s.b.client.Offsets(asking, topic); errors.Is(err, broker.ErrNoTopic) {
					s.end(topicLost(topic, err))
				}
				cancel()
			}
		}
	})
	return func() { cancel(); looking.Wait() }
}

// fence puts the session's markers into all partitions there are, and gives those of
// the checkpoint topic.
func (s *session) fence(ctx context.Context) (fences []int64, err error) {
	var all errgroup.Group
	for _, t := range s.topics {
		all.Go(func() (err error) {
			t.markers, err = s.mark(ctx, t.lanes)
			return err
		})
	}
	all.Go(func() (err error) {
		fences, err = s.mark(ctx, s.recorder.lanes)
		return err
	})
	return fences, all.Wait()
}

// readCheckpoint reads the checkpoint topic up to our markers in it: the states of
// the topics, by name, and the entries, by partition key.
func (s *session) readCheckpoint(ctx context.Context, fences []int64) (map[string]topicState, map[string]entry, error) {
	var mu sync.Mutex
	states, loaded := map[string]topicState{}, map[string]entry{}
	all, ctx := errgroup.WithContext(ctx)
	for p, until := range fences {
		all.Go(func() error {
			part := map[string]entry{} // so that the partitions do not wait for each other
			err := s.b.readRecords(ctx, p, until, func(key []byte, e entry) error {
				failpoint.Hit("loading")
				if e == (entry{}) {
					delete(part, string(key))
				} else {
					part[string(key)] = e
				}
				return nil
			}, func(t topicState) {
				mu.Lock()
				defer mu.Unlock()
				states[t.Topic] = t
			})
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(loaded, part)
			return err
		})
	}
	return states, loaded, all.Wait()
}

// readRecords reads one partition of the checkpoint topic up to an offset, and yields
// the entries of our cluster, the zero entry where a record says that there is none
// any more.
func (b *Bus) readRecords(ctx context.Context, partition int, until int64, yield func(key []byte, e entry) error, state func(topicState)) error {
	prefix := event.ClusterPartitionKeys(b.opts.Cluster)
	stateKeys := []byte(stateKey(b.opts.Cluster, ""))
	writerKey := []byte(event.WriterPartitionKey(b.opts.Cluster, b.opts.CheckpointTopic, partition))
	_, err := b.client.Read(ctx, b.opts.CheckpointTopic, partition, 0, until, func(r broker.Record) error {
		switch {
		case !bytes.HasPrefix(r.Key, prefix), bytes.Equal(r.Key, writerKey):
			return nil
		case bytes.HasPrefix(r.Key, stateKeys):
			var t topicState
			if parse(r.Value, &t) {
				state(t)
			}
			return nil
		case r.Value == nil:
			return yield(r.Key, entry{})
		}
		var e entry
		if !parse(r.Value, &e) {
			// Somebody else's hand. What it stood for is found in the event topic if it
			// was the last, or published again.
			b.log.Warn("a record of the checkpoint topic is none of ours", "partition", partition, "offset", r.Offset)
			return nil
		}
		return yield(r.Key, e)
	})
	if err != nil {
		return fmt.Errorf("read partition %d of the checkpoint topic %q: %w", partition, b.opts.CheckpointTopic, err)
	}
	return nil
}

// adopt reads what a topic holds beyond what is recorded of it, adds that to loaded
// and to the checkpoint topic, and lets its state follow there. The topic's markers are
// written; to open it is left to the caller.
func (s *session) adopt(ctx context.Context, t *topic, state topicState, loaded map[string]entry) error {
	offsets, err := s.b.client.Offsets(ctx, t.name)
	if err != nil {
		return err
	}
	known := make([]int64, len(t.lanes)) // everything below is recorded
	for p := range known {
		intact, err := s.isIntact(ctx, t, state, p)
		if err != nil {
			return err
		}
		if intact {
			known[p] = state.Markers[p] + 1
		} else if p < len(state.Markers) {
			s.b.log.Warn("a partition is not the one that was written to before; what it holds is read from its start", "topic", t.name, "partition", p)
		}
	}
	lost := map[string]int{} // partitions by key
	for key, e := range loaded {
		switch {
		case e.Topic != t.name:
		case e.Partition >= len(known), known[e.Partition] == 0, e.Offset >= t.markers[e.Partition], e.Offset < offsets.Start[e.Partition]:
			delete(loaded, key)
			lost[key] = e.Partition
		}
	}
	for _, e := range loaded {
		if e.Topic == t.name {
			known[e.Partition] = max(known[e.Partition], e.Offset+1)
		}
	}
	if state.Partitions > 0 {
		t.spread = min(state.Partitions, t.spread)
	}
	if t.spread < len(t.lanes) {
		s.b.log.Warn("the topic has more partitions than when it was first written to. An object's events stay in one partition, so the new ones are not used; to use them, publish to another topic (KUBERELAY_KAFKA_TOPIC)",
			"topic", t.name, "partitions", len(t.lanes), "used", t.spread)
	}
	if err := s.catchUp(ctx, t, known, loaded, lost); err != nil {
		return err
	}
	if state.Partitions == 0 {
		t.spread = spreadOf(t, loaded)
	}
	s.recorder.state(topicState{
		Topic: t.name, Partitions: t.spread, Records: s.recorder.spread, Markers: t.markers, Session: s.id, Writer: s.b.opts.Writer,
	})
	return nil
}

// isIntact tells whether a partition has the marker of the writer before us, where
// that wrote it. If not it was deleted and made again, or its brokers lost its end.
func (s *session) isIntact(ctx context.Context, t *topic, state topicState, p int) (bool, error) {
	if p >= len(state.Markers) || state.Markers[p] >= t.markers[p] {
		return false, nil
	}
	return s.b.hasMarker(ctx, t.name, p, state.Markers[p], state.Session)
}

// hasMarker tells whether a session's marker is at an offset.
func (b *Bus) hasMarker(ctx context.Context, topic string, partition int, offset int64, session string) (bool, error) {
	r, found, err := b.client.ReadOne(ctx, topic, partition, offset)
	if err != nil || !found || string(r.Key) != event.WriterPartitionKey(b.opts.Cluster, topic, partition) {
		return false, err
	}
	attribute, err := attributesOf(r)
	return err == nil && strings.HasPrefix(attribute("id"), "writer."+session+"."), nil
}

// catchUp reads each partition from its known offset to our marker. What it finds was
// stored and not recorded: it goes into loaded, and is recorded before it returns, and
// so is what of the lost it does not find.
func (s *session) catchUp(ctx context.Context, t *topic, known []int64, loaded map[string]entry, lost map[string]int) error {
	type stored struct {
		key   string
		entry entry // zero for a tombstone
	}
	found := make([][]stored, len(known))
	prefix := event.ClusterPartitionKeys(s.b.opts.Cluster)
	all, reading := errgroup.WithContext(ctx)
	for p, from := range known {
		if failpoint.Bug("trust-checkpoint") {
			break
		}
		all.Go(func() error {
			_, err := s.b.client.Read(reading, t.name, p, from, t.markers[p], func(r broker.Record) error {
				if bytes.HasPrefix(r.Key, prefix) {
					if e, ok := s.b.entryOf(r, t.name, p); ok {
						found[p] = append(found[p], stored{string(r.Key), e})
					}
				}
				return nil
			})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("read topic %q: %w", t.name, err)
	}
	for key, p := range lost {
		s.recorder.forget([]byte(key), p)
	}
	for p, records := range found {
		for _, r := range records {
			if r.entry == (entry{}) {
				delete(loaded, r.key)
				s.recorder.forget([]byte(r.key), p)
			} else {
				loaded[r.key] = r.entry
				s.recorder.put([]byte(r.key), r.entry)
			}
		}
	}
	return s.flush(ctx)
}

// remember takes over what is known to be stored.
func (s *session) remember(loaded map[string]entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range loaded {
		if e.Type != "" {
			s.markers[key] = e
		} else {
			s.index.found(identify([]byte(key)), e.position())
		}
	}
}

// spreadOf finds out how many partitions the keys of a topic are spread over, where no
// record says so: the highest number by which each is where it is.
func spreadOf(t *topic, loaded map[string]entry) int {
	spread := len(t.lanes)
	for n := spread; n > 0; n-- {
		fits := true
		for key, e := range loaded {
			if e.Topic == t.name && binding.Partition([]byte(key), n) != e.Partition {
				fits = false
				break
			}
		}
		if fits {
			return n
		}
	}
	return spread
}
