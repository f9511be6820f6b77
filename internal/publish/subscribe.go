package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// ErrMissing is in the chain of why nothing can be read from a bus while the stream or
// topic does not exist.
var ErrMissing = errors.New("does not exist yet")

// From is where a subscription begins.
type From int

const (
	// FromNow: with the first event after the subscription has found the stream or
	// topic.
	FromNow From = iota
	// FromStart: with the oldest event that the bus still has.
	FromStart
	// FromLast: with the last event of every object and the last marker of every
	// resource, and then with what comes.
	FromLast
	// FromTime: with the first event that the bus took at [SubscribeOptions.Since] or
	// later.
	FromTime
)

// SubscribeOptions say what a subscription is to bring. Its functions, and the one
// that is given the events, are not called at the same time.
type SubscribeOptions struct {
	// Filters are subjects with wildcards, no two of which may match the same
	// subject. Without any it is everything of the cluster, or of all clusters where
	// the bus was opened without one. A bus that has no subjects does not heed them.
	Filters []string
	From    From
	Since   time.Time // with FromTime

	// Notify, if set, is told why no events come, and nil once they can. It may be
	// told the same again.
	Notify func(err error)

	// Foreign, if set, is given what is on the bus and is no event of ours, and why
	// it is not.
	Foreign func(d Delivery, err error)

	// Tombstone, if set, is told of a record without a value, which says that the
	// bus has no event of an object any more. Only Kafka has such.
	Tombstone func(k event.Key, d Delivery)

	// Past, if set, is given what is on the bus before the first event, each log's
	// before anything else of it. Only Kafka does so, and has to read it all; on NATS
	// one asks for what one needs.
	Past func(m *event.Message, d Delivery)
}

// Delivery tells how an event came.
type Delivery struct {
	Subject  string // that of NATS; on Kafka the record's key
	Cluster  string // as the subject names it
	Log      Log
	Position uint64    // grows within the log
	Stored   time.Time // when the bus took it

	// Whole tells that of the log nothing was missing up to here: the reader has been
	// given all that was ever written to it. It may be false although it is so.
	Whole bool
}

// Log names one of the ordered logs that a bus is made of: a partition of a topic. The
// zero value is the only one of a bus that is a single stream.
type Log struct {
	Topic     string
	Partition int
}

// Place is the position as people write it: the sequence in a stream, or partition and
// offset.
func (d Delivery) Place() string {
	if d.Log == (Log{}) {
		return fmt.Sprint(d.Position)
	}
	return fmt.Sprintf("%d:%d", d.Log.Partition, Offset(d.Position))
}

// The position of a record of Kafka is its partition and its offset, plus one so that
// none is 0, in one number.
const offsetBits = 48

// MaxPartitions is how many partitions of a topic positions can tell apart.
const MaxPartitions = 1 << (64 - offsetBits)

// PositionOf is the position of the record at an offset of a partition.
func PositionOf(partition int, offset int64) uint64 {
	return uint64(partition)<<offsetBits | uint64(offset+1)
}

// Partition is the partition of a position on Kafka.
func Partition(position uint64) int { return int(position >> offsetBits) }

// Offset is the offset of a position on Kafka.
func Offset(position uint64) int64 { return int64(position&(1<<offsetBits-1)) - 1 }
