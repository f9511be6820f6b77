package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/stored"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/topics"
)

// At returns the event of an object at a position. It returns the zero value if the topic no longer
// holds the event, or holds another record at that position. It takes at most [Options.AckTimeout].
func (b *Bus) At(ctx context.Context, k event.Key, position uint64) (publish.Stored, error) {
	if position == 0 {
		return publish.Stored{}, nil
	}
	topic, partition := b.topics.Template.Of(k), publish.Partition(position)
	ctx, cancel := context.WithTimeout(ctx, b.opts.AckTimeout)
	defer cancel()
	found, err := b.stored.Object(ctx, topic, k, position)
	if err != nil && !errors.Is(err, broker.ErrNoTopic) {
		return publish.Stored{}, fmt.Errorf("read the event of %s at offset %d of partition %d of topic %q: %w", k, publish.Offset(position), partition, topic, err)
	}
	return found, nil
}

// LastMarker returns the type and ID of the last snapshot marker of a resource, or "" if there is
// none. It ignores a marker of an earlier release, because that marker becomes a row in tables
// built from the topic. The caller then publishes another marker, which removes the row.
func (b *Bus) LastMarker(_ context.Context, gr schema.GroupResource) (t event.Type, id string, err error) {
	s, err := b.current()
	if s == nil {
		return "", "", fmt.Errorf("look up the snapshot marker of %s: %w", gr, err)
	}
	e := s.marker(event.MarkerPartitionKey(b.opts.Cluster, gr))
	if !e.NoValue {
		return "", "", nil
	}
	return e.Type, e.ID, nil
}

// Purge removes the checkpoint entry of an object whose last event, a delete, is at the given
// position. It does nothing if the last event is at another position, or if an event of the object
// is in flight. If no tombstone follows the delete yet, because [Options.Tombstones] is off, Purge
// first writes one to a compacted topic. It takes at most [Options.AckTimeout]. A tombstone that is
// not acknowledged by then can be stored later.
//
// Purge keeps the entry of the newest event that the session recorded in a partition, and returns
// [event.ErrNewest] for it. The next writer learns only from that entry how far the log must reach.
// For events before the session, it learns this from the session's marker.
func (b *Bus) Purge(ctx context.Context, k event.Key, upTo uint64) error {
	s, err := b.current()
	if s == nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	key := []byte(event.PartitionKey(b.opts.Cluster, k))
	id := index.Of(key)
	t := s.openTopic(b.topics.Template.Of(k))
	if t == nil {
		return fmt.Errorf("purge %s: %w", k, errOpening)
	}
	if _, _, ok := s.index.Begin(id, upTo); !ok {
		return nil
	}
	partition := binding.Partition(key, t.spread)
	if t.newest[partition].Load() == publish.Offset(upTo) {
		s.index.End(id, 0)
		return fmt.Errorf("purge %s: %w", k, event.ErrNewest)
	}
	if t.senders[partition].IsStalled(time.Now()) { // do not delay the purges that follow
		s.index.End(id, 0)
		return fmt.Errorf("purge %s: %w", k, errPartitionBusy)
	}
	forget := func() {
		s.recorder.Erase(key, s.recorder.Home(partition))
		s.index.Remove(id)
	}
	if b.opts.Tombstones || b.opts.CleanupPolicy != "compact" {
		forget()
		return nil
	}
	result := make(chan error, 1)
	tombstone := &sender.Item{Record: recordbatch.Record{Key: key}, Done: func(_ int64, err error) {
		if err != nil {
			s.index.End(id, 0)
		} else {
			forget()
		}
		result <- err
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, b.opts.AckTimeout, errTimeout)
	defer cancel()
	t.senders[partition].Add(tombstone)
	select {
	case err = <-result:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if t.senders[partition].Withdraw(tombstone) {
			s.index.End(id, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("purge %s: %w", k, err)
	}
	return nil
}

// whoWrites describes the writer that took over. It returns "" if the writer is unknown.
func (b *Bus) whoWrites() string {
	ctx, cancel := context.WithTimeout(b.ctx, b.opts.AckTimeout)
	defer cancel()
	last, err := b.stored.LastWriter(ctx)
	if err != nil || last == (stored.Writer{}) {
		return ""
	}
	return fmt.Sprintf("; the writer since %s is %s", last.Since, last.Name)
}

// LastClaim returns the owner of the cluster name on the bus, or the zero value if there is none.
func (b *Bus) LastClaim(context.Context) (event.Claim, error) {
	s, err := b.current()
	if s == nil {
		return event.Claim{}, fmt.Errorf("look up the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
	}
	return stored.ClaimOf(s.marker(event.ClaimPartitionKey(b.opts.Cluster))), nil
}

// admit checks whether this process may take over. It runs before the process writes any record,
// because a takeover fences the current writer. It reads the claim from the checkpoint topic, even if
// another process has just created that topic. If this process creates the topic, admit has no claim to
// read. If a claim was lost with an earlier checkpoint topic, only the takeover finds it, in the event
// topic.
func (b *Bus) admit(ctx context.Context) error {
	if b.opts.Admit == nil {
		return nil
	}
	if err := b.opts.Permit.Check(); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, 3*b.opts.AckTimeout)
	_, created, err := b.topics.Ensure(asking, b.opts.CheckpointTopic)
	cancel()
	if err != nil {
		return err
	}
	var c event.Claim
	if !created {
		if c, err = b.stored.Claim(ctx); err != nil {
			return fmt.Errorf("look up the owner of cluster name %s on the bus: %w", b.opts.Cluster, err)
		}
	}
	return b.opts.Admit(c)
}

// Inspection is the state of a forwarder's topics, as the brokers report it.
type Inspection = topics.Inspection

// TopicInspection is the state of one topic, as the brokers report it.
type TopicInspection = topics.TopicInspection

// Inspect reads the state of the forwarder's topics. It writes nothing. With a topic per resource,
// it inspects the topics of the given resources. It returns an error if the options are invalid, or
// if the list of brokers cannot be read. A retry cannot fix an error that wraps [ErrMisconfigured].
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
