package simulate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
	natsbinding "github.com/kuberelay/kuberelay/internal/publish/nats/binding"
)

// session is a forwarder's producer epoch. It models how internal/publish/kafka uses the topics.
// Package takeover makes the decisions of a takeover.
type session struct {
	p          *process
	epoch      int
	events     []*writing
	checkpoint []*writing
	records    int // see [takeover.Checkpoint]

	last   map[int]uint64          // positions of the last events, by object
	busy   map[int]bool            // objects with an event in flight
	loaded map[string]record.Entry // the entries that the takeover found; nil if outdated
}

// writing tracks the records that a session has written to a partition.
type writing struct {
	marker   record.Entry
	last     int64 // the offset of the last record
	newest   int64 // the offset of the last event, -1 for none
	sequence int   // of the next record
	sending  bool  // a coroutine has a batch in flight
	unstored []takeover.Write
}

var (
	errDataLost = errors.New("the brokers have lost records of the session")
	errReplaced = errors.New("the session has ended")
	errBusy     = errors.New("an event of the object is in flight")
)

func newWritings(n int) []*writing {
	all := make([]*writing, n)
	for i := range all {
		all[i] = &writing{newest: -1}
	}
	return all
}

// takeOver runs takeovers until one succeeds. If another forwarder is the writer, the process ends.
func (p *process) takeOver() {
	for p.session == nil && !p.gone {
		s, err := p.newSession()
		switch {
		case errors.Is(err, errFenced):
			p.gone = true
		case err != nil:
			p.world.tell("  forwarder %d could not take over: %v", p.slot+1, err)
		default:
			p.session = s
			p.world.tell("  forwarder %d is the writer, with epoch %d", p.slot+1, s.epoch)
		}
	}
}

// newSession performs one takeover.
func (p *process) newSession() (*session, error) {
	b := &p.world.brokers
	s := &session{p: p, events: newWritings(len(b.events)), checkpoint: newWritings(len(b.checkpoint)), last: map[int]uint64{}, busy: map[int]bool{}}
	err := p.busRequest(func() error {
		if p.wrote && b.owner != p {
			return errFenced
		}
		b.epoch++
		b.owner, p.wrote, s.epoch = p, true, b.epoch
		return nil
	})
	if err != nil {
		return nil, err
	}
	for n, l := range b.checkpoint {
		if err := produce(s, l, s.checkpoint[n], takeover.Write{Partition: n}); err != nil {
			return nil, err
		}
		s.checkpoint[n].marker.Offset = s.checkpoint[n].last
	}
	recorded, err := s.readCheckpoint()
	if err != nil {
		return nil, err
	}
	s.records = recorded.Records
	topic := recorded.Take(eventTopic, len(b.events))
	for n, l := range b.events {
		marker := record.Entry{Type: event.WriterStarted, ID: fmt.Sprint("epoch-", s.epoch), NoValue: true, Topic: eventTopic, Partition: n, Time: p.now().Unix()}
		marker.Offset = int64(len(l.records))
		if err := produce(s, l, s.events[n], logged{key: markerKey(n), entry: marker}); err != nil {
			return nil, err
		}
		marker.Offset = s.events[n].last
		s.events[n].marker = marker
	}
	recorded.SetAside(s.write)
	if err := s.recover(topic); err != nil {
		return nil, err
	}
	err = s.flush()
	return s, err
}

func markerKey(partition int) string {
	return event.WriterPartitionKey(clusterName, eventTopic, partition)
}

// readCheckpoint reads the checkpoint topic up to the session's markers.
func (s *session) readCheckpoint() (*takeover.Checkpoint, error) {
	recorded := takeover.NewCheckpoint(len(s.checkpoint))
	for n, l := range s.p.world.brokers.checkpoint {
		err := s.p.busRequest(func() error {
			for offset, r := range l.records[:min(int64(len(l.records)), s.checkpoint[n].marker.Offset)] {
				if !r.removed {
					recorded.Read(n, int64(offset), r.is.Key, r.is.Checkpoint)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	recorded.Finish()
	return recorded, nil
}

// recover reads the event topic and brings the checkpoint's entries up to date with it.
func (s *session) recover(topic *takeover.Topic) error {
	for n, l := range s.p.world.brokers.events {
		part := topic.Begin(n, 0, s.events[n].marker)
		for read, more := part.Next(); more; read, more = part.Next() {
			if read.Reason != takeover.NoReason {
				s.p.losses++
			}
			err := s.p.busRequest(func() error {
				end := int64(len(l.records))
				if read.Key == "" && end < read.To {
					return errDataLost // the log ends before the marker
				}
				for offset := read.From; offset < min(read.To, end); offset++ {
					r := l.at(offset)
					switch {
					case r == nil:
					case read.Key != "" && r.is.key != read.Key:
						part.Read(takeover.Record{Offset: offset})
					default:
						part.Read(r.is.record(int(offset)))
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	topic.Lookups() // sets the topic's spread, and returns no entries because the model erases none
	topic.Update(s.write)
	for n, w := range s.events {
		s.write(takeover.Write{Partition: takeover.Home(n, s.records), Key: markerKey(n), Checkpoint: record.Checkpoint{Kind: record.OfEvent, Entry: w.marker}})
	}
	s.loaded = maps.Clone(topic.Entries())
	for key, e := range s.loaded {
		s.last[objectOfKey(key)] = e.Position()
	}
	return nil
}

// write queues a record for the checkpoint topic.
func (s *session) write(w takeover.Write) {
	if w.Kind == record.OfTopic {
		w.Key = record.StateKey(clusterName, w.State.Topic)
	}
	s.checkpoint[w.Partition].unstored = append(s.checkpoint[w.Partition].unstored, w)
}

// produce writes a batch to a partition. It sends the batch until the broker responds. In a takeover,
// it sends the batch only once, because another takeover follows a failed one.
func produce[R any](s *session, l *topicLog[R], at *writing, batch ...R) error {
	for at.sending {
		if err := s.request(func() error { return nil }); errors.Is(err, errReplaced) {
			return err
		}
	}
	at.sending = true
	for {
		offset := 0
		err := s.p.busRequest(func() (err error) {
			offset, _, err = l.produce(s.epoch, at.sequence, s.p.now(), batch...)
			return err
		})
		switch {
		case err == nil:
			at.sending, at.sequence, at.last = false, at.sequence+len(batch), int64(offset+len(batch)-1)
			return nil
		case s.p.session != s, errors.Is(err, errFenced), errors.Is(err, errOutOfOrder):
			return s.failed(err)
		}
	}
}

// flush stores everything that is queued for the checkpoint topic.
func (s *session) flush() error {
	for n, at := range s.checkpoint {
		for len(at.unstored) > 0 {
			if err := produce(s, s.p.world.brokers.checkpoint[n], at, at.unstored[0]); err != nil {
				return err
			}
			at.unstored = at.unstored[1:]
		}
	}
	return nil
}

// storeEntry stores the next record of a partition of the checkpoint topic, in one step.
func (s *session) storeEntry(n int) {
	at, w := s.checkpoint[n], s.p.world
	offset, _, err := w.brokers.checkpoint[n].produce(s.epoch, at.sequence, w.now, at.unstored[0])
	if err != nil {
		_ = s.failed(err)
		return
	}
	at.sequence, at.last, at.unstored = at.sequence+1, int64(offset), at.unstored[1:]
}

// failed ends the session after an error that a retry can't fix.
func (s *session) failed(err error) error {
	switch {
	case s.p.session != s:
	case errors.Is(err, errFenced):
		s.p.gone = true
	case errors.Is(err, errOutOfOrder), errors.Is(err, errDataLost):
		s.p.endSession(err)
	}
	return err
}

// endSession ends the session. Its requests may still arrive at the brokers.
func (p *process) endSession(err error) {
	p.world.tell("  the session of forwarder %d ends: %v", p.slot+1, err)
	p.session = nil
	for _, f := range p.world.flightsOf(p) {
		p.world.stopWaiting(f, err)
	}
	if p.loaded {
		p.spawn(takingOver, func() {
			p.takeOver()
			p.retryNow()
			p.reload()
		})
	}
}

func (k kafka) publish(_ context.Context, m *event.Message, done func(uint64, error)) {
	p, s, object := k.p, k.p.session, objectOf(m.Key)
	switch {
	case s == nil:
		done(0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, errOffline))
		return
	case s.busy[object]:
		done(0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, errBusy))
		return
	}
	s.loaded = nil
	if s.last[object] != m.Expected {
		p.spawn(int8(object), func() { done(s.resolve(m)) })
		return
	}
	s.busy[object] = true
	p.send(m, s, done)
}

// resolve handles a message that doesn't expect the object's last event. It returns the position of
// that event if the event is the same message, and a conflict otherwise.
func (s *session) resolve(m *event.Message) (uint64, error) {
	p, object := s.p, objectOf(m.Key)
	last, conflict := s.last[object], &publish.ConflictError{Key: m.Key}
	if last == 0 {
		return 0, conflict
	}
	err := p.busRequest(func() error {
		if !p.world.brokers.had(last) {
			return errDataLost
		}
		is := p.world.brokers.events[publish.Partition(last)].at(publish.Offset(last))
		if is == nil { // compaction removed a delete and left its tombstone
			is = p.world.brokers.events[publish.Partition(last)].at(publish.Offset(last) + 1)
		}
		if is == nil || is.is.key != event.PartitionKey(clusterName, m.Key) {
			s.last[object] = 0
			return nil
		}
		conflict.Bus = is.is.entry.Acked()
		conflict.Bus.Position = last
		if decoded, err := natsbinding.Decode(is.is.Headers, is.is.Data); err == nil && publish.IsSame(m, decoded) {
			conflict = nil
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("publish %s: %w: %w", m.ID, publish.ErrNotSent, s.failed(err))
	case conflict == nil:
		return last, nil
	}
	return 0, conflict
}

// arriveAtKafka delivers the batch of a flight.
func (w *world) arriveAtKafka(f *flight) {
	f.stage = answered
	s, key := f.session, event.PartitionKey(clusterName, f.m.Key)
	n := f.partition()
	l, at := w.brokers.events[n], s.events[n]
	position := publish.PositionOf(n, int64(len(l.records)))
	message := f.message(position, w.now)
	acked, _ := message.Acked()
	e := record.EntryOf(acked, eventTopic, n, int64(len(l.records)))
	e.Time = w.now.Unix()
	batch := []logged{{message, key, e}}
	if w.brokers.tombstones && e.Deleted {
		batch = append(batch, logged{key: key, entry: e})
	}
	offset, isNew, err := l.produce(s.epoch, at.sequence, w.now, batch...)
	f.failed = err
	switch {
	case err != nil:
		w.tell("  the broker refuses %s: %v", describe(f.m), err)
	case isNew:
		w.tell("  partition %d stores %s at %d", n, describe(f.m), offset)
		w.storedEvent(f, w.brokers.at(position))
		fallthrough
	default:
		f.position = publish.PositionOf(n, int64(offset))
	}
	if f.sender == nil {
		w.drop(f)
	}
}

// answerOfKafka delivers the broker's answer to the sender of a flight.
func (w *world) answerOfKafka(f *flight) {
	s, n := f.session, f.partition()
	if f.failed != nil {
		_ = s.failed(f.failed)
		return
	}
	at, e := s.events[n], w.brokers.entryAt(f.position)
	at.sequence++
	at.last, at.newest = publish.Offset(f.position), publish.Offset(f.position)
	if w.brokers.tombstones && f.m.Acked.Deleted {
		at.sequence, at.last = at.sequence+1, at.last+1
	}
	if e == (record.Entry{}) { // lost since the broker acknowledged it
		e = record.EntryOf(f.m.Acked, eventTopic, n, publish.Offset(f.position))
	}
	s.write(takeover.Write{Partition: takeover.Home(n, s.records), Key: event.PartitionKey(clusterName, f.m.Key), Checkpoint: record.Checkpoint{Kind: record.OfEvent, Entry: e}})
	s.last[f.object], s.busy[f.object] = f.position, false
	w.finish(f, f.position, nil)
}

// entryAt returns the entry of the event at a position.
func (b *brokers) entryAt(position uint64) record.Entry {
	if r := b.events[publish.Partition(position)].at(publish.Offset(position)); r != nil {
		return r.is.entry
	}
	return record.Entry{}
}

func (f *flight) partition() int {
	return binding.Partition([]byte(event.PartitionKey(clusterName, f.m.Key)), len(f.session.events))
}

// isFirst reports whether a flight is the first one of its session in its partition. A session has
// one batch in flight in each partition.
func (w *world) isFirst(f *flight) bool {
	i := slices.IndexFunc(w.flights, func(other *flight) bool {
		return other.session == f.session && (f.session == nil || other.partition() == f.partition())
	})
	return f.session == nil || w.flights[i] == f && !f.session.events[f.partition()].sending
}
