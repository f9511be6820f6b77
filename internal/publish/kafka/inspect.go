package kafka

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/topics"
)

// Inspection is the state of a forwarder's topics, as the brokers report it.
type Inspection = topics.Inspection

// TopicInspection is the state of one topic, as the brokers report it.
type TopicInspection = topics.TopicInspection

// Writer is a forwarder that took over the topics of a cluster.
type Writer = stored.Writer

// Inspect reads the state of the forwarder's topics. It writes nothing. With a topic per resource,
// it inspects the topics of the given resources. It returns an error if the options are invalid, or
// if the list of brokers cannot be read. A retry cannot fix an error with [ErrMisconfigured] in its
// chain.
func Inspect(ctx context.Context, o Options, resources []schema.GroupResource) (Inspection, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Inspection{}, err
	}
	client, err := broker.New(o.Broker)
	if err != nil {
		return Inspection{}, err
	}
	defer client.Close() //nolint:errcheck // always nil
	return o.topics(client, o.stored(client), func() {}).Inspect(ctx, resources)
}

// errOtherMarker ends a session that finds the marker of another writer. The marker does not prove
// a takeover, because any client with access to the topic can write one. The brokers decide: after
// a takeover by another writer, they reject the next session.
var errOtherMarker = errors.New("the checkpoint topic has the marker of another writer")

// findOtherWriter returns errOtherMarker if another writer may have taken over. An idle writer
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
