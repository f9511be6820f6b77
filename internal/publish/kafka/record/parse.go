package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Parser parses the records of one cluster. It is safe for concurrent use.
type Parser struct {
	cluster, checkpoint    string // checkpoint is the name of the checkpoint topic
	clusterKeys, stateKeys []byte // prefixes
}

// NewParser returns a Parser for the records of a cluster and its checkpoint topic.
func NewParser(cluster, checkpointTopic string) Parser {
	return Parser{
		cluster: cluster, checkpoint: checkpointTopic,
		clusterKeys: event.ClusterPartitionKeys(cluster), stateKeys: []byte(StateKey(cluster, "")),
	}
}

// Owns reports whether a key belongs to the cluster.
func (p Parser) Owns(key []byte) bool { return bytes.HasPrefix(key, p.clusterKeys) }

// Kind is the kind of a checkpoint record.
type Kind int

// The kinds of checkpoint records.
const (
	Ignored Kind = iota // an invalid record, a record of another cluster, a removed state, or a marker of the checkpoint topic itself
	OfEvent             // has the entry of a key
	OfTopic             // has the state of a topic
	Removed             // the key no longer has an entry
)

// Checkpoint is a record of the checkpoint topic.
type Checkpoint struct {
	Kind  Kind
	Entry Entry
	State State
}

// Checkpoint parses a record from a partition of the checkpoint topic.
func (p Parser) Checkpoint(r broker.Record, partition int) (Checkpoint, error) {
	if p.Owns(r.Key) && len(r.Key) > event.MaxText {
		return Checkpoint{}, tooLong(r.Key)
	}
	key := string(r.Key)
	switch {
	case !p.Owns(r.Key), key == event.WriterPartitionKey(p.cluster, p.checkpoint, partition):
		return Checkpoint{}, nil
	case bytes.HasPrefix(r.Key, p.stateKeys):
		return p.state(key[len(p.stateKeys):], r.Value, partition)
	case r.Value == nil:
		return Checkpoint{Kind: Removed}, isKey(key)
	}
	var e Entry
	if err := json.Unmarshal(r.Value, &e); err != nil {
		return Checkpoint{}, event.Invalid(event.InvalidData, fmt.Errorf("decode the entry of %q: %w", key, err))
	}
	e.Time = seconds(e.Time)
	if err := p.check(key, e); err != nil {
		return Checkpoint{}, err
	}
	return Checkpoint{Kind: OfEvent, Entry: e}, nil
}

// state parses the state of a topic. A forwarder writes states only to the first partition.
func (p Parser) state(topic string, value []byte, partition int) (Checkpoint, error) {
	if value == nil {
		return Checkpoint{}, nil
	}
	fail := func(reason event.InvalidReason, err error) (Checkpoint, error) {
		return Checkpoint{}, event.Invalid(reason, fmt.Errorf("decode the state of topic %q: %w", topic, err))
	}
	var s State
	switch err := json.Unmarshal(value, &s); {
	case err != nil:
		return fail(event.InvalidData, err)
	case s.Topic != topic || !IsTopic(topic):
		return fail(event.InvalidKey, fmt.Errorf("it names the topic %.100q", s.Topic))
	case len(s.Session) > event.MaxText || len(s.Writer) > event.MaxText:
		return fail(event.InvalidData, fmt.Errorf("the name of its session or writer has more than %d bytes", event.MaxText))
	case s.Partitions < 0 || s.Partitions > publish.MaxPartitions || s.Records < 0 || s.Records > publish.MaxPartitions:
		return fail(event.InvalidPosition, fmt.Errorf("it has %d partitions and %d checkpoint partitions, want 0 to %d of each", s.Partitions, s.Records, publish.MaxPartitions))
	}
	if partition != 0 {
		return fail(event.InvalidPosition, fmt.Errorf("it is in partition %d, want 0", partition))
	}
	return Checkpoint{Kind: OfTopic, State: s}, nil
}

// Event returns the entry for a record of an event topic. For the tombstone directly after a
// removal, Event returns the removal's entry. For any other tombstone, and for a consistency point,
// it returns the zero entry.
func (p Parser) Event(r broker.Record, topic string, partition int) (Entry, error) {
	if len(r.Key) > event.MaxText {
		return Entry{}, tooLong(r.Key)
	}
	key := string(r.Key)
	var e Entry
	_, _, err := event.ParseMarkerPartitionKey(key)
	switch isMarker := err == nil; {
	case isMarker && (r.Value != nil || binding.IsControl(r.Headers)):
		e, err = marker(r)
	case r.Value == nil:
		return p.tombstone(r, topic, partition)
	default:
		e, err = ofObject(r)
	}
	if err != nil || e == (Entry{}) {
		return Entry{}, err
	}
	e.Topic, e.Partition, e.Offset, e.Time = topic, partition, r.Offset, Stored(r.Time)
	return e, p.check(key, e)
}

// ofObject returns the entry for an object's event, without its place and Time. If the event has the
// type of a marker, the caller rejects it because of its key.
func ofObject(r broker.Record) (Entry, error) {
	attribute, _, err := binding.Attributes(r.Headers, r.Value)
	if err != nil {
		return Entry{}, event.Invalid(event.InvalidEvent, err)
	}
	switch t := event.Type(attribute("type")); t {
	case event.WriterStarted, event.ClusterClaimed, event.SnapshotStarted, event.SnapshotCompleted:
		return Entry{Type: t, ID: attribute("id")}, nil
	}
	acked, err := event.AckedFrom(attribute)
	return EntryOf(acked, "", 0, 0), err
}

// marker returns the entry for a control record, or the zero entry for a consistency point.
func marker(r broker.Record) (Entry, error) {
	m, err := binding.DecodeControl(r.Headers, r.Value)
	if err != nil {
		return Entry{}, event.Invalid(event.InvalidEvent, err)
	}
	e := Entry{Type: event.Type(m.Attribute("type")), ID: m.ID, NoValue: r.Value == nil}
	switch e.Type {
	case event.Resolved:
		return Entry{}, nil
	case event.ClusterClaimed:
		var c event.Claim
		c, err = event.ClaimFrom(m)
		e.UID, e.Epoch, e.Claim = c.UID, c.Epoch, string(m.Data)
	}
	return e, err
}

// tombstone returns the entry of the removal directly before a tombstone, or the zero entry if the
// tombstone does not name a removal.
func (p Parser) tombstone(r broker.Record, topic string, partition int) (Entry, error) {
	key := string(r.Key)
	attribute, ok := binding.Removal(r.Headers)
	if !ok {
		return Entry{}, isKey(key)
	}
	acked, err := event.AckedFrom(attribute)
	if err != nil {
		return Entry{}, err
	}
	if !acked.Deleted {
		return Entry{}, event.Invalid(event.InvalidAttribute, fmt.Errorf("a tombstone has the type %q, want a type that removes the object", attribute("type")))
	}
	e := EntryOf(acked, topic, partition, r.Offset-1)
	e.Time = Stored(r.Time)
	return e, p.check(key, e)
}

// check returns an error if no forwarder writes the entry under the key.
func (p Parser) check(key string, e Entry) error {
	switch {
	case !IsTopic(e.Topic):
		return event.Invalid(event.InvalidPosition, fmt.Errorf("the entry of %q names the invalid topic %.100q", key, e.Topic))
	case len(e.ID) > event.MaxText:
		return event.Invalid(event.InvalidAttribute, fmt.Errorf("the id in the entry of %q has %d bytes, and the limit is %d", key, len(e.ID), event.MaxText))
	case len(e.Claim) > event.MaxText:
		return event.Invalid(event.InvalidData, fmt.Errorf("the claim in the entry of %q has %d bytes, and the limit is %d", key, len(e.Claim), event.MaxText))
	case e.Partition < 0 || e.Partition >= publish.MaxPartitions || e.Offset < 0 || e.Offset > publish.MaxOffset || e.Unread < 0:
		return event.Invalid(event.InvalidPosition, fmt.Errorf("the entry of %q has a number out of range: partition %d, offset %d, unread offset %d", key, e.Partition, e.Offset, e.Unread))
	}
	if p.isKeyOf(key, e) {
		if e.Type == "" || e.Type == event.ClusterClaimed {
			return e.Acked().Validate()
		}
		return nil
	}
	return event.Invalid(event.InvalidKey, fmt.Errorf("the key %q does not match the event type %.100q", key, e.Type))
}

// isKeyOf reports whether a key matches the type of an entry.
func (p Parser) isKeyOf(key string, e Entry) bool {
	switch e.Type {
	case "":
		_, _, err := event.ParsePartitionKey(key)
		return err == nil
	case event.WriterStarted:
		return key == event.WriterPartitionKey(p.cluster, e.Topic, e.Partition)
	case event.ClusterClaimed:
		return key == event.ClaimPartitionKey(p.cluster)
	case event.SnapshotStarted, event.SnapshotCompleted:
		_, k, err := event.ParseMarkerPartitionKey(key)
		return err == nil && k.Resource != ""
	}
	return false
}

func tooLong(key []byte) error {
	return event.Invalid(event.InvalidKey, fmt.Errorf("the key has %d bytes, and the limit is %d", len(key), event.MaxText))
}

// isKey returns an error if a key names neither an object nor a marker.
func isKey(key string) error {
	_, _, err := event.ParsePartitionKey(key)
	if err != nil {
		_, _, err = event.ParseMarkerPartitionKey(key)
	}
	if err != nil {
		return event.Invalid(event.InvalidKey, errors.New("the key does not name an object or a marker"))
	}
	return nil
}

// IsTopic reports whether name is a valid topic name (Topic.java).
func IsTopic(name string) bool {
	const valid = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return name != "" && len(name) <= 249 && strings.Trim(name, valid) == ""
}
