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
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

type (
	entry      = record.Entry
	keyedEntry = takeover.Keyed
)

// mark writes the session's marker to every partition of the topics, and blocks until all markers
// are stored. It saves the entries of the written markers in the markers field of each topic.
func (s *session) mark(ctx context.Context, topics ...*topic) error {
	places := placesIn(topics)
	return broker.Each(ctx, len(places), func(ctx context.Context, i int) (err error) {
		at := places[i]
		at.t.markers[at.p], err = s.markOne(ctx, at.t.senders[at.p])
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

// setMarker sets the last marker with a partition key: a snapshot marker of a resource, or the
// claim.
func (s *session) setMarker(partitionKey string, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markers[partitionKey] = e
}

// marker returns the last marker with a partition key, the zero value for none.
func (s *session) marker(partitionKey string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.markers[partitionKey]
}
