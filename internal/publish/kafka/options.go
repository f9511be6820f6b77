package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// ContentMode is how an event is laid out in a record (CloudEvents Kafka protocol
// binding, section 3).
type ContentMode string

// The content modes.
const (
	Binary     ContentMode = "binary"     // attributes in headers, data is the value
	Structured ContentMode = "structured" // the whole event as JSON is the value
)

// Options say which cluster is published to which Kafka, and how. The names in
// errors are those of the environment.
type Options struct {
	Broker broker.Options

	Cluster string // of Kubernetes
	// Topic is the event topic; with {group} and {resource} in it, that of a resource.
	Topic           string
	CheckpointTopic string // the default is Topic with .checkpoint, see DefaultCheckpointTopic

	// How topics are created. Existing ones are checked.
	Partitions    int    // the default is 3
	Replication   int    // -1, the default, for what the brokers have as theirs
	CleanupPolicy string // of the event topics: compact, the default, or delete
	Tombstones    bool   // let a tombstone follow a delete in the end: see Purge

	ContentMode     ContentMode // the default is binary
	Compression     recordbatch.Compression
	Idempotent      bool
	TransactionalID string // the default is kuberelay.<cluster>
	Writer          string // who this is, for people; the default is the host's name

	// Admit, if set, is told which cluster has the name on the bus, before this takes
	// over from whoever writes for it. Its error, which should have [ErrMisconfigured]
	// in its chain if waiting does not cure it, keeps it from that.
	Admit func(event.Claim) error

	// Permit, if set, is asked right before this takes over and before each batch is sent,
	// and refuses it by an error. Brokers refuse a writer who has been replaced, but not
	// one who is about to replace another, nor where [Options.Idempotent] is off.
	Permit func() error

	AckTimeout  time.Duration // until a publish counts as unknown; the default is 10 s
	MaxInFlight int           // messages; the default is 2048
	BatchBytes  int           // of a batch before compression; the default is 1 MiB

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for none

	perResource bool
	produce     produce // instead of the client's, in tests
}

// produce is one attempt to store a batch.
type produce func(ctx context.Context, topic string, partition int, batch []byte) (base int64, err error)

// What Kafka takes as a topic's name (Topic.java).
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (o Options) withDefaults() (Options, error) {
	o.perResource = isTemplate(o.Topic)
	set(&o.CheckpointTopic, DefaultCheckpointTopic(o.Topic))
	set(&o.CleanupPolicy, "compact")
	set(&o.ContentMode, Binary)
	set(&o.TransactionalID, "kuberelay."+o.Cluster)
	set(&o.Partitions, 3)
	set(&o.Replication, -1)
	set(&o.AckTimeout, 10*time.Second)
	set(&o.MaxInFlight, 2048)
	set(&o.BatchBytes, 1<<20)
	if o.Writer == "" {
		o.Writer, _ = os.Hostname() // only people miss it
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	set(&o.Broker.RequestTimeout, o.AckTimeout)
	if o.Broker.Logger == nil {
		o.Broker.Logger = o.Logger
	}
	return o, o.validate()
}

func (o *Options) permitted() error {
	if o.Permit == nil {
		return nil
	}
	return o.Permit()
}

func set[T comparable](field *T, otherwise T) {
	var zero T
	if *field == zero {
		*field = otherwise
	}
}

// DefaultCheckpointTopic is <topic>.checkpoint, without what stands for a resource.
func DefaultCheckpointTopic(topic string) string {
	topic = strings.NewReplacer(groupPlace, "", resourcePlace, "").Replace(topic)
	topic = strings.Trim(regexp.MustCompile(`[._-]{2,}`).ReplaceAllString(topic, "."), "._-")
	return strings.TrimPrefix(topic+".checkpoint", ".")
}

func (o Options) validate() error {
	example := strings.NewReplacer(groupPlace, "g", resourcePlace, "r").Replace(o.Topic)
	switch {
	case o.Cluster == "":
		return misconfigured("the cluster has no name")
	case !topicName.MatchString(example):
		return misconfigured("KUBERELAY_KAFKA_TOPIC is %q: use letters, digits, '.', '_' and '-', and the places %s and %s", o.Topic, groupPlace, resourcePlace)
	case !o.perResource && strings.ContainsAny(o.Topic, "{}"), o.perResource && !strings.Contains(o.Topic, resourcePlace):
		return misconfigured("KUBERELAY_KAFKA_TOPIC is %q: a topic for each resource needs the place %s, and may have %s", o.Topic, resourcePlace, groupPlace)
	case !topicName.MatchString(o.CheckpointTopic):
		return misconfigured("KUBERELAY_KAFKA_CHECKPOINT_TOPIC is %q: use letters, digits, '.', '_' and '-'", o.CheckpointTopic)
	case o.CheckpointTopic == o.Topic:
		return misconfigured("KUBERELAY_KAFKA_CHECKPOINT_TOPIC is %q, which is KUBERELAY_KAFKA_TOPIC too: use another, or unset it for %q", o.CheckpointTopic, DefaultCheckpointTopic(o.Topic))
	case o.Partitions < 1 || o.Partitions > publish.MaxPartitions:
		return misconfigured("KUBERELAY_KAFKA_PARTITIONS is %d: use a number from 1 to %d", o.Partitions, publish.MaxPartitions)
	case o.Replication < -1 || o.Replication == 0:
		return misconfigured("KUBERELAY_KAFKA_REPLICATION is %d: use a number of replicas, or -1 for what the brokers have as theirs", o.Replication)
	case o.CleanupPolicy != "compact" && o.CleanupPolicy != "delete":
		return misconfigured("KUBERELAY_KAFKA_CLEANUP_POLICY is %q: use compact or delete", o.CleanupPolicy)
	case o.ContentMode != Binary && o.ContentMode != Structured:
		return misconfigured("KUBERELAY_CONTENT_MODE is %q: use %q or %q", o.ContentMode, Binary, Structured)
	case o.AckTimeout < 0 || o.MaxInFlight < 0 || o.BatchBytes < 0:
		return misconfigured("the acknowledgement timeout (%s), the number in flight (%d) and the size of a batch (%d) must be positive", o.AckTimeout, o.MaxInFlight, o.BatchBytes)
	}
	return nil
}

func misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMisconfigured}, args...)...)
}
