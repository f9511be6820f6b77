package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
)

// ErrMissing means that the stream or topic does not exist yet. Meanwhile, [SubscribeOptions.Notify]
// receives an error that wraps ErrMissing.
var ErrMissing = errors.New("does not exist yet")

// ErrUnreachable means that the bus does not respond. Readers that do not wait for the bus, such as get
// and verify, return it.
var ErrUnreachable = errors.New("it does not respond")

// ErrLost means that a subscription might have missed messages. It ends a subscription with
// [SubscribeOptions.UntilLost].
var ErrLost = errors.New("the bus lost messages")

// MaxAway is the longest time for which a subscription can be cut off from the bus without missing
// a delete. A forwarder keeps each delete for at least five minutes, unless KUBERELAY_DELETE_RETENTION is
// shorter.
const MaxAway = 4 * time.Minute

// From is the start of a subscription.
type From int

const (
	// FromNow starts with the first event that is stored after the subscription finds the stream or
	// topic.
	FromNow From = iota
	// FromStart starts with the oldest event on the bus.
	FromStart
	// FromLast starts with the last event of every object and the last marker of every
	// resource, and continues with new events.
	FromLast
	// FromTime starts with the first event that the bus stored at [SubscribeOptions.Since] or later.
	// Kafka stores times in whole milliseconds, so FromTime includes earlier events of the same
	// millisecond.
	FromTime
	// FromCursor continues after [SubscribeOptions.Cursor]. If the cursor has no position for a log,
	// the subscription reads that log from its start.
	FromCursor
)

// Cursor is a place on the bus.
type Cursor struct {
	Stream    time.Time         // creation time of the stream, which identifies it; zero on Kafka
	Topics    map[string]string // ID of each topic, as far as it is known; empty on NATS
	Positions map[Log]uint64    // position of the last message in each log
}

// SubscribeOptions configures a subscription. The subscription calls these functions and its yield
// function one at a time, never concurrently.
type SubscribeOptions struct {
	// Filters are subjects with wildcards. No two of them may match the same subject. Without
	// filters, the subscription receives everything of the cluster, or of all clusters if the bus
	// was opened without a cluster. A bus without subjects ignores the filters.
	Filters []string
	From    From
	Since   time.Time // with FromTime
	Cursor  Cursor    // with FromCursor

	// Notify, if set, receives the reason why no events arrive, and nil once the cause is gone. It
	// might receive the same error more than once.
	Notify func(err error)

	// Foreign, if set, receives each message that is not a Kuberelay event, and the reason.
	Foreign func(d Delivery, err error)

	// Tombstone, if set, receives records without a value. Such a record means that the bus no
	// longer has an event of the object. Only Kafka has tombstones.
	Tombstone func(k event.Key, d Delivery)

	// CaughtUp, if set, is called once, after the subscription has yielded everything that was on
	// the bus at some moment after the start. An error from CaughtUp ends the subscription, as an
	// error from yield does.
	CaughtUp func(Cursor) error

	// UntilLost ends the subscription with [ErrLost] when it might have missed messages: the stream
	// or topic was recreated, lost its end or its start, or was unreachable for [MaxAway]. Without
	// UntilLost, the subscription reads a new stream or topic from its start, and continues after a
	// gap.
	UntilLost bool

	// Past, if set, receives the events before the start of the subscription. In each log, Past
	// receives all of them before yield receives its first event. Only Kafka supports Past. To call
	// it, the subscription reads each log from its start.
	Past func(m *event.Message, d Delivery)
}

// Delivery describes how an event was delivered.
type Delivery struct {
	Subject  string // the subject on NATS; the record key on Kafka
	Cluster  string // cluster name in the subject or key
	Log      Log
	Position uint64    // increases within the log
	Stored   time.Time // when the bus stored the event

	// Whole means that the reader received everything that was ever written to the log up to this
	// event. False means unknown.
	Whole bool

	// Misplaced means that the record is in the topic of another resource than the one in its key. It
	// says nothing about the object in its key.
	Misplaced bool
}

// Log is one of the ordered logs of a bus: a partition of a topic. A bus with a single stream uses
// only the zero value.
type Log struct {
	Topic     string
	Partition int
}

// Place returns the position in the usual notation: the stream sequence number, or
// partition:offset.
func (d Delivery) Place() string {
	if d.Log == (Log{}) {
		return fmt.Sprint(d.Position)
	}
	return fmt.Sprintf("%d:%d", d.Log.Partition, Offset(d.Position))
}

// Object returns the object that the subject or record key names, even if the message is
// not a valid event. ok is false for a marker, for a subject or key that names no object,
// and for a misplaced record.
func (d Delivery) Object() (cluster string, k event.Key, ok bool) {
	if d.Misplaced {
		return "", event.Key{}, false
	}
	// Try the key first, because a key with dots can also be a valid subject. A subject is never a valid
	// key, because it has no slashes.
	if cluster, k, err := event.ParsePartitionKey(d.Subject); err == nil {
		return cluster, k, true
	}
	_, cluster, k, marker, err := subject.Parse(d.Subject)
	return cluster, k, err == nil && !marker
}

// offsetBits is the number of position bits for the offset on Kafka. A position combines the
// partition and the offset plus one, so no position is 0.
const offsetBits = 48

// MaxPartitions is the maximum number of partitions of a topic that positions can
// represent.
const MaxPartitions = 1 << (64 - offsetBits)

// MaxOffset is the highest offset that a position can represent.
const MaxOffset = 1<<offsetBits - 2

// PositionOf returns the position of an offset in a partition.
func PositionOf(partition int, offset int64) uint64 {
	return uint64(partition)<<offsetBits | uint64(offset+1)
}

// Partition returns the partition of a position on Kafka.
func Partition(position uint64) int { return int(position >> offsetBits) }

// Offset returns the offset of a position on Kafka.
func Offset(position uint64) int64 { return int64(position&(1<<offsetBits-1)) - 1 }
