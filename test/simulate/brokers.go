package simulate

import (
	"errors"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
)

const (
	eventTopic      = "events"
	checkpointTopic = "checkpoint"
)

// brokers is the model of a Kafka cluster with the topics of one forwarder. TestModelOfKafka
// compares its logs with those of a real broker.
type brokers struct {
	events     []*topicLog[logged]
	checkpoint []*topicLog[takeover.Write]
	tombstones bool     // a tombstone follows each delete, and the event topic is compacted
	epoch      int      // the last producer epoch of the transactional id
	owner      *process // the process that received that epoch
}

// logged is a record of the event topic. The message has the headers and the data of the event,
// and the position as its sequence. Tombstones, markers and consistency points have an empty message.
type logged struct {
	stream.Message
	key   string
	entry record.Entry
}

// topicLog is the log of one partition. The offset is the index.
type topicLog[R any] struct{ records []stored[R] }

func newLogs[R any](partitions int) []*topicLog[R] {
	logs := make([]*topicLog[R], partitions)
	for n := range logs {
		logs[n] = &topicLog[R]{}
	}
	return logs
}

type stored[R any] struct {
	is       R
	epoch    int // of the producer
	sequence int
	at       time.Time
	batched  bool // in one batch with the record before it
	removed  bool // by compaction
}

var (
	errFenced     = errors.New("a later producer epoch has written to the partition")
	errOutOfOrder = errors.New("the sequence does not follow the last one of the producer")
)

// produce appends a batch of an idempotent producer, unless the log already contains it. It returns
// the offset of the first record, and whether the batch is new. As in Kafka, a partition derives the
// state of its producers from its log.
func (l *topicLog[R]) produce(epoch, sequence int, now time.Time, batch ...R) (offset int, isNew bool, err error) {
	last, next := -1, 0
	if n := len(l.records); n > 0 {
		last, next = l.records[n-1].epoch, l.records[n-1].sequence+1
	}
	if epoch > last {
		next = 0
	}
	switch {
	case epoch < last:
		return 0, false, errFenced
	case sequence > next:
		return 0, false, errOutOfOrder
	case sequence < next:
		return slices.IndexFunc(l.records, func(s stored[R]) bool { return s.epoch == epoch && s.sequence == sequence }), false, nil
	}
	offset = len(l.records)
	for n, r := range batch {
		l.records = append(l.records, stored[R]{is: r, epoch: epoch, sequence: sequence + n, at: now, batched: n > 0})
	}
	return offset, true, nil
}

// at returns the record at an offset, or nil.
func (l *topicLog[R]) at(offset int64) *stored[R] {
	if offset < 0 || offset >= int64(len(l.records)) || l.records[offset].removed {
		return nil
	}
	return &l.records[offset]
}

// lose removes the records from an offset on. If that offset is inside a batch, lose removes the whole
// batch.
func (l *topicLog[R]) lose(from int) {
	for from > 0 && from < len(l.records) && l.records[from].batched {
		from--
	}
	l.records = l.records[:from]
}

// loseRecent loses up to n of the last records, and the rest of their first batch. It keeps records
// older than syncInterval, which brokers don't lose.
func (l *topicLog[R]) loseRecent(n int, now time.Time) (lost bool) {
	from := len(l.records)
	for ; from > 0 && n > 0 && now.Sub(l.records[from-1].at) <= syncInterval; from-- {
		n--
	}
	before := len(l.records)
	l.lose(from)
	return len(l.records) < before
}

// compact removes every record that has a later record with the same key. It ignores the records of the last
// syncInterval, because they model the active segment. Brokers don't compact the active segment, and can lose
// the end of only that segment.
func (l *topicLog[R]) compact(now time.Time, keyOf func(R) string) {
	later := map[string]bool{}
	for n, s := range slices.Backward(l.records) {
		if key := keyOf(s.is); key != "" && !s.removed && now.Sub(s.at) > syncInterval {
			l.records[n].removed = later[key]
			later[key] = true
		}
	}
}

// at returns the event at a position, or nil.
func (b *brokers) at(position uint64) *stream.Message {
	if r := b.events[publish.Partition(position)].at(publish.Offset(position)); position != 0 && r != nil && r.is.Subject != "" {
		return &r.is.Message
	}
	return nil
}

// had reports whether the log reaches a position, even if compaction has removed the record there.
func (b *brokers) had(position uint64) bool {
	return publish.Offset(position) < int64(len(b.events[publish.Partition(position)].records))
}

// record returns a record of the event topic for a takeover.
func (l logged) record(offset int) takeover.Record {
	return takeover.Record{Offset: int64(offset), Key: l.key, Entry: l.entry, Valid: true, Time: l.entry.Time}
}

// compact compacts the topics.
func (b *brokers) compact(now time.Time) {
	for _, l := range b.checkpoint {
		l.compact(now, func(w takeover.Write) string { return w.Key })
	}
	for _, l := range b.events {
		if b.tombstones {
			l.compact(now, func(r logged) string { return r.key })
		}
	}
}

// isKafka reports whether the bus is Kafka.
func (w *world) isKafka() bool { return w.sink == Kafka }

// hasStored reports whether the bus still has the event at a position. On Kafka, an event that compaction has
// removed counts too.
func (w *world) hasStored(position uint64) bool {
	if w.isKafka() {
		return w.brokers.had(position)
	}
	return w.bus.at(position) != nil
}

// startBrokers starts the brokers, which may have lost the ends of the event topic, of the
// checkpoint topic, or of both. Only a takeover or a load finds the loss. isNoticed means that the outage was
// long enough for the forwarders to notice it.
func (w *world) startBrokers(lose, which int, isNoticed bool) {
	lost := false
	for n, l := range w.brokers.events {
		if which != 1 && l.loseRecent(lose, w.now) {
			w.tell("  partition %d ends at %d", n, len(l.records))
			lost = true
		}
	}
	for n, l := range w.brokers.checkpoint {
		if which != 0 && l.loseRecent(lose, w.now) {
			w.tell("  partition %d of the checkpoint topic ends at %d", n, len(l.records))
			lost = true
		}
	}
	if lost {
		w.oracle.lost()
		w.plain = false
	}
	for _, p := range w.processes {
		if p != nil && p.loaded && isNoticed {
			p.retryNow()
			p.reload()
		}
	}
}

// recreate empties the event topic, the checkpoint topic, or both. It also removes their writer markers.
func (w *world) recreate(which int) {
	if which != 1 {
		for _, l := range w.brokers.events {
			l.lose(0)
		}
	}
	if which != 0 {
		for _, l := range w.brokers.checkpoint {
			l.lose(0)
		}
	}
	w.oracle.lost()
	w.plain = false
}

// isReplaced reports whether another forwarder has started to take over.
func (s *session) isReplaced() bool {
	records := s.p.world.brokers.checkpoint[0].records
	return len(records) > 0 && records[len(records)-1].epoch > s.epoch
}

// reap ends the processes that are no longer the writer. After the faults, it starts another process
// if none is left.
func (w *world) reap() {
	alive := 0
	for _, p := range w.processes {
		switch {
		case p == nil:
		case p.gone && w.elects:
			p.endTerm()
			alive++
		case p.gone:
			w.tell("  forwarder %d ends, because another one is the writer", p.slot+1)
			p.kill()
		default:
			alive++
		}
	}
	if alive == 0 && w.ended {
		w.start(0)
	}
}
