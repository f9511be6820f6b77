package kafka

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Inspection is the state of a forwarder's topics, as the brokers report it. [Inspect] collects it
// and writes nothing.
type Inspection struct {
	Brokers    int
	Topics     []TopicInspection // event topics: one in total, or one per resource
	Checkpoint TopicInspection

	Claim    event.Claim
	ClaimErr error
	// Writer is the forwarder that took over the topics last; the zero value if that is unknown.
	Writer Writer
}

// Writer is a forwarder that took over the topics of a cluster.
type Writer struct {
	Name  string // name of its pod or host
	Since string // time of the takeover, in the format of the attribute time
}

// TopicInspection is the state of one topic, as the brokers report it. Err is the reason if the
// inspection failed.
type TopicInspection struct {
	Name string
	broker.Inspection
	Err error
	// Grant is the command that grants the first missing operation.
	Grant string
}

// Inspect reads the state of the forwarder's topics. It writes nothing. With a topic per resource,
// it inspects the topics of the given resources. It returns an error if the options are invalid, or
// if the list of brokers cannot be read. A retry cannot fix an error with [ErrMisconfigured] in its
// chain.
func Inspect(ctx context.Context, o Options, resources []schema.GroupResource) (Inspection, error) {
	var none Inspection
	o, err := o.withDefaults()
	if err != nil {
		return none, err
	}
	client, err := broker.New(o.Broker)
	if err != nil {
		return none, err
	}
	defer client.Close() //nolint:errcheck // always nil
	b := &Bus{opts: o, client: client, log: o.Logger, parser: record.NewParser(o.Cluster, o.CheckpointTopic)}
	var i Inspection
	if i.Brokers, err = client.Brokers(ctx); err != nil {
		return none, err
	}
	for _, name := range b.expected(resources) {
		i.Topics = append(i.Topics, b.inspect(ctx, name))
	}
	i.Checkpoint = b.inspect(ctx, o.CheckpointTopic)
	if i.Checkpoint.Err == nil && !i.Checkpoint.Missing {
		i.Claim, i.ClaimErr = b.recordedClaim(ctx)
		i.Writer, _ = b.lastWriter(ctx) // unknown without permission to read the checkpoint topic
	}
	return i, nil
}

// expected returns the names of the event topics of the given resources.
func (b *Bus) expected(resources []schema.GroupResource) (names []string) {
	if !b.opts.perResource {
		return []string{b.opts.Topic}
	}
	for _, gr := range resources {
		names = append(names, b.topicOf(event.Key{Group: gr.Group, Resource: gr.Resource}))
	}
	return names
}

func (b *Bus) inspect(ctx context.Context, name string) TopicInspection {
	is, err := b.client.Inspect(ctx, b.wanted(name))
	t := TopicInspection{Name: name, Inspection: is, Err: err}
	if len(is.Denied) > 0 {
		t.Grant = b.client.AddACL(is.Denied[0], name)
	}
	return t
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
	err := b.read(ctx, b.opts.CheckpointTopic, 0, s.searched, end, func(r broker.Record) error {
		if string(r.Key) == writerKey {
			e, ok := b.entryOf(r, b.opts.CheckpointTopic, 0)
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
