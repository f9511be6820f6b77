package record

import (
	"encoding/json"
	"math"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Entry is the value of a checkpoint record. It describes the last event of a key. The record has
// the same key as the event.
type Entry struct {
	UID             string       `json:"uid,omitempty"`
	ResourceVersion string       `json:"resourceVersion,omitempty"`
	Epoch           uint16       `json:"epoch,omitempty"`
	Digest          event.Digest `json:"digest,omitzero"`
	Deleted         bool         `json:"deleted,omitempty"`
	Deselected      bool         `json:"deselected,omitempty"`
	Time            int64        `json:"time,omitempty"` // the record's timestamp, in seconds since 1970; 0 if unknown
	At              int64        `json:"at,omitempty"`   // the event's attribute time, as in [event.Acked]

	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`

	// Type and ID are set for markers, including the writer's.
	Type event.Type `json:"type,omitempty"`
	ID   string     `json:"id,omitempty"`

	// NoValue means that the marker's record has no value. A table built from the topic then has no
	// row for the record, and compaction removes the record. Earlier releases write a value.
	NoValue bool `json:"noValue,omitempty"`

	// Claim is the data of a claim. Compaction removes the claim itself from the event topic.
	// Earlier releases don't record the data.
	Claim string `json:"claim,omitempty"`

	// Unread is set for the writer's marker of an event partition. It is the first offset of
	// another writer's record that the writer has not read or not answered, or 0 if there is none.
	Unread int64 `json:"unread,omitempty"`

	// Foreign means that another writer's record is at this place, after the event that the other
	// fields describe. An entry with Foreign is never written to the checkpoint topic.
	Foreign bool `json:"-"`
}

// EntryOf returns the entry of an object's event, without Time. The caller sets Time to the
// timestamp of the record.
func EntryOf(a event.Acked, topic string, partition int, offset int64) Entry {
	return Entry{
		UID: a.UID, ResourceVersion: a.ResourceVersion, Epoch: a.Epoch, Deleted: a.Deleted, Deselected: a.Deselected,
		Digest: a.Digest, At: a.Time, Topic: topic, Partition: partition, Offset: offset,
	}
}

// Position returns the position of the event.
func (e Entry) Position() uint64 { return publish.PositionOf(e.Partition, e.Offset) }

// Acked returns the event in the form of the in-memory checkpoint.
func (e Entry) Acked() event.Acked {
	a := event.Acked{
		UID: e.UID, ResourceVersion: e.ResourceVersion, Epoch: e.Epoch, Deleted: e.Deleted, Deselected: e.Deselected,
		Digest: e.Digest, Time: e.At, Position: e.Position(), Foreign: e.Foreign,
	}
	a.StoredAt(time.Unix(e.Time, 0))
	return a
}

// IsSameEvent reports whether two entries of a key describe the same event.
func (e Entry) IsSameEvent(other Entry) bool {
	return e.Type == other.Type && e.ID == other.ID && (e.Type != "" || e.UID == other.UID && e.ResourceVersion == other.ResourceVersion &&
		e.Epoch == other.Epoch && e.Deleted == other.Deleted && e.Deselected == other.Deselected)
}

// State is the value of the record that the checkpoint topic has for each event topic. It lets the
// next writer find the topic and assign keys to the same partitions. It does not say how far the topic
// is recorded.
type State struct {
	Topic string `json:"topic"`
	// Partitions is the number of partitions that keys are spread over. The topic can have more
	// partitions by now, but the events of an object stay in one partition.
	Partitions int `json:"partitions"`
	// Records is the number of checkpoint partitions that records are spread over. As with
	// Partitions, the checkpoint topic can have more by now.
	Records int `json:"records,omitempty"`
	// Session and Writer tell people who wrote the record.
	Session string `json:"session"`
	Writer  string `json:"writer"`
}

// StateKey returns the key of a topic's state. An object never has this key, because "_control" is not
// a valid API group.
func StateKey(cluster, topic string) string {
	return string(event.ClusterPartitionKeys(cluster)) + "_control/topic/_/" + topic
}

// Marshal returns the value of an Entry or a State.
func Marshal[T Entry | State](v T) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the fields of these types always encode
	}
	return b
}

// Stored returns the Time of an entry for the timestamp of its record. A producer can set any
// timestamp. If the timestamp is unknown or more than [event.MaxSkew] in the future, Stored returns
// the current time, because the retention of a delete begins at Time.
func Stored(at time.Time) int64 {
	now := time.Now()
	if at.Unix() > 0 && at.Sub(now) <= event.MaxSkew {
		return at.Unix()
	}
	return now.Unix()
}

// seconds returns unix if it is in the range of an entry's Time, and 0 otherwise.
func seconds(unix int64) int64 {
	if unix < 0 || unix > math.MaxUint32 {
		return 0
	}
	return unix
}
