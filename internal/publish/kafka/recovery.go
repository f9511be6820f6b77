package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// recovery is an event topic and its known content.
type recovery struct {
	*topic
	known *takeover.Topic
}

// recoverTopics determines the contents of topics, after the session has written its markers to
// them. It also updates the checkpoint topic: it keeps the correct entries and adds entries for the
// events that follow them. The caller opens the topics afterward.
func (s *session) recoverTopics(ctx context.Context, all []recovery) error {
	starts := make([][]int64, len(all))
	err := broker.Each(ctx, len(all), func(ctx context.Context, i int) error {
		offsets, err := s.b.client.Offsets(ctx, all[i].name)
		starts[i] = offsets.Start
		return err
	})
	if err != nil {
		return err
	}
	var places []place
	var parts []*takeover.Partition
	for i, a := range all {
		for p, marker := range a.markers {
			places = append(places, place{a.topic, p})
			parts = append(parts, a.known.Begin(p, starts[i][p], marker))
		}
	}
	err = broker.Each(ctx, len(places), func(ctx context.Context, i int) error { return s.readPartition(ctx, places[i], parts[i]) })
	if err != nil {
		return err
	}
	for _, a := range all {
		if err := s.lookUpErased(ctx, a); err != nil {
			return err
		}
		s.adopt(a)
	}
	return s.flush(ctx)
}

// readPartition reads the parts of a partition that the session does not know yet.
func (s *session) readPartition(ctx context.Context, at place, p *takeover.Partition) error {
	for read, more := p.Next(); more; read, more = p.Next() {
		if read.Reason != takeover.NoReason {
			s.b.losses.Add(1) // the caller might know events that the topic has lost
		}
		switch read.Reason {
		case takeover.Mismatch:
			s.b.log.Warn("partition does not match the checkpoint because it was recreated or the brokers lost records; reading it from the start", "topic", at.t.name, "partition", at.p)
		case takeover.NoMarker:
			s.b.log.Info("the checkpoint has no marker for the partition, because of an upgrade, an interrupted takeover, data loss, or an invalid record; reading the partition from the start", "topic", at.t.name, "partition", at.p)
		case takeover.NoReason:
		}
		if err := s.readFor(ctx, at, read, p); err != nil {
			return fmt.Errorf("read topic %q: %w", at.t.name, err)
		}
	}
	return nil
}

// readFor reads a range and passes its records to p.
func (s *session) readFor(ctx context.Context, at place, read takeover.Read, p *takeover.Partition) error {
	if read.Key != "" {
		r, found, err := s.b.stored.LookUp(ctx, at.t.name, at.p, read)
		if err == nil && found {
			p.Read(r)
		}
		return err
	}
	return s.b.stored.ReadCounted(ctx, s.b.opts.Takeover, at.t.name, at.p, read.From, read.To, func(r broker.Record) error {
		if s.b.stored.Owns(r.Key) {
			at.t.senders[at.p].NotBefore(r.Time)
			p.Read(s.b.stored.RecordOf(r, at.t.name, at.p))
		}
		return nil
	})
}

// lookUpErased restores the entries that another writer erased from the checkpoint topic, if the
// event topic still holds their events.
func (s *session) lookUpErased(ctx context.Context, a recovery) error {
	some, all := a.known.Lookups()
	if recorded, ignored := a.known.IgnoredState(); ignored {
		s.b.log.Warn("another writer recorded a wrong number of partitions for the topic, ignoring it", "topic", a.name, "recorded", recorded, "used", a.known.Spread)
	}
	if a.known.Spread < len(a.senders) {
		s.b.log.Warn("new partitions of the topic are not used, because the events of an object stay in one partition; to use them, publish to another topic (KUBERELAY_KAFKA_TOPIC)",
			"topic", a.name, "partitions", len(a.senders), "used", a.known.Spread)
	}
	if len(some) < all {
		s.b.log.Warn("another writer replaced too many entries of the checkpoint topic, looking up only some of them", "topic", a.name, "entries", all, "looked_up", len(some))
	}
	is := make([]bool, len(some))
	err := broker.Each(ctx, len(some), func(ctx context.Context, i int) (err error) {
		_, is[i], err = s.b.stored.Holds(ctx, some[i].Keyed)
		return err
	})
	if err != nil {
		return err
	}
	for i, e := range some {
		if is[i] {
			a.known.Restore(e)
			s.b.stored.Report(s.b.opts.CheckpointTopic, e.Home, e.By,
				event.Invalid(event.InvalidPosition, fmt.Errorf("the entry of %q, whose last event is at position %d, was replaced", e.Key, e.Position())))
		}
	}
	return nil
}

// adopt writes the result of a topic's takeover to the checkpoint topic, and prepares the topic's
// senders.
func (s *session) adopt(a recovery) {
	for p, unix := range a.known.Times() {
		a.senders[p].NotBefore(time.Unix(unix+1, 0)) // rounded up, because the milliseconds are unknown
	}
	a.known.Update(s.recorder.Write)
	found := map[string]index.ForeignRecord{}
	for key, e := range a.known.Foreign() {
		found[key] = index.ForeignRecord{Entry: e}
	}
	s.b.foreign.Add(found)
	a.spread = a.known.Spread
	for p, l := range a.senders {
		l.RecordMarker(a.known.Unread(p))
	}
}

// recordMarker records the session's marker for an event partition. unread is the first unread
// offset, or 0 if there is none.
func (s *session) recordMarker(t *topic, p int, unread int64) {
	marker := t.markers[p]
	marker.Unread = unread
	s.recorder.Put([]byte(s.markerKey(t.name, p)), marker)
}

// mark writes the session's marker to every partition of the topics, and blocks until all markers are stored.
// It saves the entries of the written markers in the markers field of each topic. A marker that is stored
// after the timeout does not change the field, because a sender might read the field by then.
func (s *session) mark(ctx context.Context, topics ...*topic) error {
	places := placesIn(topics)
	return broker.Each(ctx, len(places), func(ctx context.Context, i int) error {
		at := places[i]
		marker, err := s.markOne(ctx, at.t.senders[at.p])
		if err == nil {
			at.t.markers[at.p] = marker
		}
		return err
	})
}

// place is a partition of a topic.
type place struct {
	t *topic
	p int
}

// placesIn returns all partitions of the topics.
func placesIn(topics []*topic) (places []place) {
	for _, t := range topics {
		for p := range t.senders {
			places = append(places, place{t, p})
		}
	}
	return places
}

// markOne writes the marker of one partition and returns its entry.
func (s *session) markOne(ctx context.Context, l *sender.Sender) (entry, error) {
	type result struct {
		offset int64
		err    error
	}
	m, err := event.Builder{Cluster: s.b.opts.Cluster}.WriterStarted(s.b.opts.Writer, s.id, l.Topic, l.Partition, time.Now())
	if err != nil {
		return entry{}, err
	}
	encode := s.b.encode
	if l.Topic == s.b.opts.CheckpointTopic { // nobody reads the checkpoint topic as a table, and compaction must keep the marker
		encode = func(m *event.Message) (recordbatch.Record, error) { return binding.Encode(m, false) }
	}
	record, err := encode(m)
	if err != nil {
		return entry{}, err
	}
	stored := make(chan result, 1)
	it := &sender.Item{Record: record, Done: func(offset int64, err error) { stored <- result{offset, err} }}
	l.Add(it)
	select {
	case r := <-stored:
		if r.err != nil {
			return entry{}, fmt.Errorf("write the marker of partition %d of topic %q: %w", l.Partition, l.Topic, r.err)
		}
		failpoint.Hit("taking-over")
		return entry{
			Type: event.WriterStarted, ID: m.ID, Topic: l.Topic, Partition: l.Partition, Offset: r.offset,
			Time: it.Record.Timestamp.Unix(), NoValue: record.Value == nil,
		}, nil
	case <-ctx.Done():
		return entry{}, errors.Join(s.failure(), ctx.Err())
	}
}

// markerKey returns the partition key of a writer's marker.
func (s *session) markerKey(topic string, partition int) string {
	return event.WriterPartitionKey(s.b.opts.Cluster, topic, partition)
}
