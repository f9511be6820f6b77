package kafka

import (
	"encoding/json"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// entry is the value of a record of the checkpoint topic, whose key is the event's:
// what the event topic holds last of that key.
type entry struct {
	UID             string       `json:"uid,omitempty"`
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	Epoch           uint16       `json:"epoch,omitempty"`
	Digest          event.Digest `json:"digest,omitzero"`
	Deleted         bool         `json:"deleted,omitempty"`
	Deselected      bool         `json:"deselected,omitempty"`
	Time            int64        `json:"time,omitempty"` // the event's, in seconds since 1970

	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`

	// Of a marker.
	Type event.Type `json:"type,omitempty"`
	ID   string     `json:"id,omitempty"`
}

func (e entry) position() uint64 { return publish.PositionOf(e.Partition, e.Offset) }

func (e entry) acked() event.Acked {
	return event.Acked{
		UID: e.UID, ResourceVersion: e.ResourceVersion, Epoch: e.Epoch, Deleted: e.Deleted, Deselected: e.Deselected,
		Digest: e.Digest, Stored: uint32(e.Time), Position: e.position(),
	}
}

func entryOf(a event.Acked, topic string, partition int, offset int64) entry {
	return entry{
		UID: a.UID, ResourceVersion: a.ResourceVersion, Epoch: a.Epoch, Deleted: a.Deleted, Deselected: a.Deselected,
		Digest: a.Digest, Time: int64(a.Stored), Topic: topic, Partition: partition, Offset: offset,
	}
}

// topicState is the value of another kind of record of the checkpoint topic, one for
// each event topic: how its present writer found it.
type topicState struct {
	Topic string `json:"topic"`
	// Partitions is how many the keys are spread over. The topic may have got more
	// since: an object's events stay in one.
	Partitions int `json:"partitions"`
	// Records is over how many partitions of the checkpoint topic itself the records
	// are spread, likewise.
	Records int `json:"records,omitempty"`
	// Markers are the offsets of the writer's markers, by partition. A partition that
	// does not have them there has lost what it had.
	Markers []int64 `json:"markers"`
	Session string  `json:"session"`
	Writer  string  `json:"writer"`
}

// stateKey is the key of a topic's state. It is no object's, as no group is written
// "_control".
func stateKey(cluster, topic string) string {
	return string(event.ClusterPartitionKeys(cluster)) + "_control/topic/_/" + topic
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // these types are strings and numbers
	}
	return b
}

// parse reads a value; false is that it is none of ours.
func parse(value []byte, v any) bool { return json.Unmarshal(value, v) == nil }
