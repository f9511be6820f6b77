package kafka

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/topics"
)

// ContentMode is the layout of an event in a record (CloudEvents Kafka protocol binding,
// section 3).
type ContentMode string

// The content modes.
const (
	Binary     ContentMode = "binary"     // attributes in headers, data as the value
	Structured ContentMode = "structured" // the whole event as JSON in the value
)

// Shared holds connections that several buses share.
type Shared = broker.Shared

// Options configures a Bus. Errors name the environment variable of a field.
type Options struct {
	Broker broker.Options

	Cluster string // name of the Kubernetes cluster
	// Topic is the event topic. If it contains {group} and {resource}, each resource has its own
	// topic.
	Topic           string
	CheckpointTopic string // for the default, see DefaultCheckpointTopic

	// Settings of new topics. For the checks of existing topics, see [broker.Client.Ensure].
	Partitions    int    // the default is 3
	Replication   int    // the default is -1: the default of the brokers
	CleanupPolicy string // of the event topics: compact (the default) or delete
	Tombstones    bool   // write a tombstone right after each delete, instead of at its purge

	ContentMode     ContentMode // the default is binary
	Compression     recordbatch.Compression
	Idempotent      bool
	TransactionalID string // the default is kuberelay.<cluster>
	Writer          string // name of this process in markers, informational; the default is the host name

	// Admit, if set, is called before this process takes over from the current writer. Its argument
	// is the owner of the cluster name on the bus. An error prevents the takeover. The error wraps
	// [ErrMisconfigured] if a retry cannot succeed.
	Admit func(event.Claim) error

	// Permit, if set, is called before a takeover and before each attempt to write a batch. An error
	// prevents the write. Brokers cannot replace this check: they reject a writer only after another
	// one took over, and they let any process take over. If [Options.Idempotent] is off, they reject
	// no writer.
	Permit publish.Permit

	AckTimeout  time.Duration // time after which a publish fails, even if the message might be stored; the default is 10 s
	MaxInFlight int           // in messages; the default is 2048
	BatchBytes  int           // maximum size of a batch before compression; the default is 1 MiB
	// MaxBytesInFlight is a limit that the caller of Publish enforces. The bus uses it only to limit
	// each partition to a share of it. The default is 16 MiB.
	MaxBytesInFlight int

	// Takeover counts the offsets that a takeover reads, and Reading counts the offsets that
	// [Bus.Load] reads. Both may be nil.
	Takeover, Reading *longwork.Counter

	// Invalid, if set, receives the records that are not valid records of a forwarder.
	Invalid *publish.Invalid

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for none

	produce sender.Produce // replaces the client's Produce in tests
}

func (o Options) withDefaults() (Options, error) {
	o.CheckpointTopic = cmp.Or(o.CheckpointTopic, DefaultCheckpointTopic(o.Topic))
	o.CleanupPolicy = cmp.Or(o.CleanupPolicy, "compact")
	o.ContentMode = cmp.Or(o.ContentMode, Binary)
	o.TransactionalID = cmp.Or(o.TransactionalID, "kuberelay."+o.Cluster)
	o.Partitions = cmp.Or(o.Partitions, 3)
	o.Replication = cmp.Or(o.Replication, -1)
	o.AckTimeout = cmp.Or(o.AckTimeout, 10*time.Second)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 2048)
	o.BatchBytes = cmp.Or(o.BatchBytes, 1<<20)
	o.MaxBytesInFlight = cmp.Or(o.MaxBytesInFlight, 16<<20)
	if o.Writer == "" {
		o.Writer, _ = os.Hostname() // informational only
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Broker.RequestTimeout = cmp.Or(o.Broker.RequestTimeout, o.AckTimeout)
	o.Broker.Logger = cmp.Or(o.Broker.Logger, o.Logger)
	return o, o.validate()
}

// DefaultCheckpointTopic returns <topic>.checkpoint, without the placeholders of a template.
func DefaultCheckpointTopic(topic string) string { return topics.Template(topic).DefaultCheckpoint() }

func (o *Options) stored(client *broker.Client) *stored.Reader {
	return stored.New(client, o.Cluster, o.CheckpointTopic, o.Invalid)
}

func (o *Options) topics(client *broker.Client, read *stored.Reader, created func()) *topics.Topics {
	return topics.New(client, read, topics.Config{
		Template: topics.Template(o.Topic), Checkpoint: o.CheckpointTopic,
		Partitions: o.Partitions, Replication: o.Replication, CleanupPolicy: o.CleanupPolicy,
		LookTimeout: min(o.AckTimeout, probeTimeout), Created: created, Logger: o.Logger,
	})
}

func (o Options) validate() error {
	if o.Cluster == "" {
		return failure.Misconfigured("the cluster name is empty")
	}
	if err := topics.Template(o.Topic).Validate(o.CheckpointTopic); err != nil {
		return err
	}
	switch {
	case o.Partitions < 1 || o.Partitions > publish.MaxPartitions:
		return failure.Misconfigured("KUBERELAY_KAFKA_PARTITIONS is %d: use a number from 1 to %d", o.Partitions, publish.MaxPartitions)
	case o.Replication < -1 || o.Replication == 0:
		return failure.Misconfigured("KUBERELAY_KAFKA_REPLICATION is %d: use a number of replicas, or -1 for the default of the brokers", o.Replication)
	case o.CleanupPolicy != "compact" && o.CleanupPolicy != "delete":
		return failure.Misconfigured("KUBERELAY_KAFKA_CLEANUP_POLICY is %q: use compact or delete", o.CleanupPolicy)
	case o.ContentMode != Binary && o.ContentMode != Structured:
		return failure.Misconfigured("KUBERELAY_CONTENT_MODE is %q: use %q or %q", o.ContentMode, Binary, Structured)
	case o.AckTimeout < 0 || o.MaxInFlight < 0 || o.BatchBytes < 0 || o.MaxBytesInFlight < 0:
		return failure.Misconfigured("the acknowledgement timeout (%s), the numbers of messages (%d) and bytes (%d) in flight, and the size of a batch (%d) must not be negative",
			o.AckTimeout, o.MaxInFlight, o.MaxBytesInFlight, o.BatchBytes)
	}
	return nil
}
