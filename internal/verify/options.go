package verify

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
)

// Options specify what to compare. They must match the configuration of the forwarder to verify.
type Options struct {
	Kube *rest.Config
	// NATS specifies the stream. An empty Cluster means that the name is the UID of the namespace
	// kube-system. NATSHistory is the number of messages that the stream keeps of each object. If
	// it is 0, verify uses 8.
	NATS        natsreader.Options
	NATSHistory int
	// If Kafka is set, verify reads it instead of NATS. Its Cluster has the same meaning. Repeats
	// allows events to be on the bus several times, which happens if the forwarder doesn't produce
	// idempotently.
	Kafka   *reader.Options
	Repeats bool

	// Resources, ExcludeResources, and UnlessNamed are resource selectors, in the syntax of the
	// environment variables. A wildcard does not select the resources in UnlessNamed.
	Resources, ExcludeResources, UnlessNamed []string
	Namespaces, ExcludeNamespaces            []string        // an empty Namespaces means all, an empty ExcludeNamespaces none
	NamespaceSelector                        labels.Selector // nil for all
	LabelSelector, FieldSelector             string

	// TellDeselected means that the forwarder publishes a deselected event for each object that
	// only an earlier configuration selected.
	TellDeselected bool
	// Follow lists the paths of the references that the forwarder follows.
	Follow []string

	// Shape says which objects of a resource are published, and which parts of them. If it is nil,
	// everything is published.
	Shape func(event.Resource) decode.Shape

	// RedactionKey is the key of the hashes that replace the values of Secrets. Without it, verify
	// does not compare these values.
	RedactionKey []byte
	// DeleteRetention is the time that the events of a deleted object stay on the bus. If it is 0,
	// verify uses 24 h.
	DeleteRetention time.Duration

	// Settle is the time within which the bus must reach a state of the cluster. If it is 0, verify
	// uses 10 s.
	Settle time.Duration

	// Progress counts the work of a run. The zero value counts nothing.
	Progress Progress

	Logger *slog.Logger // nil for no logs
}

// Progress contains a counter for each part of a run. The parts run one after another.
type Progress struct {
	Reading   *longwork.Counter // messages of the bus; each is read twice
	Comparing *longwork.Counter // resources
}

// counted runs a part of the work and counts it.
func counted(ctx context.Context, c *longwork.Counter, do func(context.Context) error) error {
	c.Begin()
	defer c.End()
	return do(ctx)
}

// DefaultSettle is the default of Options.Settle.
const DefaultSettle = 10 * time.Second

func (o Options) withDefaults() Options {
	o.NATS.SubjectPrefix = cmp.Or(o.NATS.SubjectPrefix, "kuberelay")
	o.NATSHistory = cmp.Or(o.NATSHistory, 8)
	o.DeleteRetention = cmp.Or(o.DeleteRetention, 24*time.Hour)
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// openFollower opens the bus.
func openFollower(ctx context.Context, o Options, c *cluster) (*replica.Follower, error) {
	name := o.NATS.Cluster
	if o.Kafka != nil {
		name = o.Kafka.Cluster
	}
	if name == "" {
		var err error
		if name, err = c.name(ctx); err != nil {
			return nil, err
		}
	}
	c.form.Cluster = name
	o.NATS.Reading = o.Progress.Reading
	ro := replica.Options{Cluster: name, Form: c.form, Retention: o.DeleteRetention, Repeats: o.Repeats}
	if o.Kafka != nil {
		o.Kafka.Reading = o.Progress.Reading
		return replica.OpenKafka(*o.Kafka, ro)
	}
	return replica.OpenNATS(ctx, o.NATS, o.NATSHistory, ro)
}
