package kafka

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Inspection is what the brokers report about the topics of a forwarder. [Inspect] collects it without
// writing.
type Inspection struct {
	Brokers    int
	Topics     []TopicInspection // of events, one or one for each resource
	Checkpoint TopicInspection

	Claim    event.Claim
	ClaimErr error
	// Writer is the forwarder that took over the topics last; the zero value if that is unknown.
	Writer Writer
}

// Writer is a forwarder that took over the topics of a cluster.
type Writer struct {
	Name  string // of its pod or host
	Since string // when it took over, as an attribute time
}

// TopicInspection is what the brokers report about one topic. Err is why they could not be asked.
type TopicInspection struct {
	Name string
	broker.Inspection
	Err error
	// Grant is the command that grants the first missing operation.
	Grant string
}

// Inspect reads the state of the forwarder's topics. It writes nothing. With a topic per resource, it
// inspects the topics of the given resources. An error means that the brokers could not be asked. A retry
// cannot fix an error with [ErrMisconfigured] in its chain.
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

// expected returns the names of the event topics of these resources.
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

// errOtherMarker ends a session after it finds the marker of another writer. Anyone with
// access to the topic can store a marker, so only the brokers know whether there is another
// writer: if there is, they reject the next session.
var errOtherMarker = errors.New("the checkpoint topic has the marker of another writer")

// findOtherWriter returns errOtherMarker if another writer may have taken over. The brokers
// do not report that to a writer that has nothing to write.
func (b *Bus) findOtherWriter(ctx context.Context, s *session, end int64) error {
	if s.producer.ID < 0 || s.recorder.senders[0].end() >= end {
		return nil // every record up to end is from this session
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
