package topics

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
)

// Inspection is the state of a forwarder's topics, as the brokers report it. [Topics.Inspect] collects it
// and writes nothing.
type Inspection struct {
	Brokers    int
	Topics     []TopicInspection // event topics: one in total, or one per resource
	Checkpoint TopicInspection

	Claim    event.Claim
	ClaimErr error
	// Writer is the forwarder that took over the topics last. It is the zero value if the writer is
	// unknown.
	Writer stored.Writer
}

// All returns the inspections of the event topics and of the checkpoint topic.
func (i Inspection) All() []TopicInspection { return append(slices.Clone(i.Topics), i.Checkpoint) }

// TopicInspection is the state of one topic, as the brokers report it. Err is the reason if the
// inspection failed.
type TopicInspection struct {
	Name string
	broker.Inspection
	Err error
	// Grant is the command that grants the first missing operation.
	Grant string
}

// Inspect reads the state of the topics. It writes nothing. With a topic per resource, it inspects
// the topics of the given resources. It returns an error if the list of brokers cannot be read.
func (t *Topics) Inspect(ctx context.Context, resources []schema.GroupResource) (i Inspection, err error) {
	if i.Brokers, err = t.client.Brokers(ctx); err != nil {
		return Inspection{}, err
	}
	for _, name := range t.expected(resources) {
		i.Topics = append(i.Topics, t.inspect(ctx, name))
	}
	i.Checkpoint = t.inspect(ctx, t.Checkpoint)
	if i.Checkpoint.Err == nil && !i.Checkpoint.Missing {
		i.Claim, i.ClaimErr = t.stored.Claim(ctx)
		i.Writer, _ = t.stored.LastWriter(ctx) // unknown without permission to read the checkpoint topic
	}
	return i, nil
}

// expected returns the names of the event topics of the given resources.
func (t *Topics) expected(resources []schema.GroupResource) (names []string) {
	if !t.Template.isPerResource() {
		return []string{string(t.Template)}
	}
	for _, gr := range resources {
		names = append(names, t.Template.Of(event.Key{Group: gr.Group, Resource: gr.Resource}))
	}
	return names
}

func (t *Topics) inspect(ctx context.Context, name string) TopicInspection {
	is, err := t.client.Inspect(ctx, t.wanted(name))
	topic := TopicInspection{Name: name, Inspection: is, Err: err}
	if len(is.Denied) > 0 {
		topic.Grant = t.client.AddACL(is.Denied[0], name)
	}
	return topic
}
