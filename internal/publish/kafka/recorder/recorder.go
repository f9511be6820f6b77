package recorder

import (
	"context"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Config configures a [Recorder]: its senders, and the session that it records.
type Config struct {
	Cluster string
	Session string // ID of the session in a topic's state; informational, like Writer
	Writer  string
	Senders []*sender.Sender // of the partitions of the checkpoint topic
	Spread  int              // the first Spread senders are in use
	Room    int              // limit of unstored records per sender
	Fail    func(error)      // ends the session
}

// Recorder writes the checkpoint topic.
//
// After a crash, the checkpoint topic can be behind the event topics. So the next writer reads each
// event partition from its highest recorded offset. This finds every event only if no entry is
// stored before the entries of lower offsets in the same partition. One sender per checkpoint
// partition guarantees that order: event partition p is recorded in checkpoint partition p modulo
// Spread, in the order of the acknowledgements. The recorder also writes the entry of the writer's
// marker to that checkpoint partition, after the entries of all records before the marker. The
// marker's entry vouches for those entries: if the checkpoint partition loses its end, it loses the
// marker's entry first.
//
// The recorder does not use partitions that are added to the checkpoint topic later, because an
// object could then have entries in two partitions, with no order between them.
type Recorder struct {
	Config

	counts []recordCounts // by sender
	stored publish.Condition
}

// New returns a Recorder.
func New(c Config) *Recorder {
	return &Recorder{Config: c, counts: make([]recordCounts, len(c.Senders))}
}

// recordCounts counts the records of one sender, which stores them in the order of add.
type recordCounts struct{ added, stored atomic.Int64 }

// Put records an event or a marker.
func (r *Recorder) Put(key []byte, e record.Entry) {
	r.add(r.Home(e.Partition), recordbatch.Record{Key: key, Value: record.Marshal(e)})
}

// Erase removes the entry of a key from a checkpoint partition.
func (r *Recorder) Erase(key []byte, home int) { r.add(home, recordbatch.Record{Key: key}) }

// Home returns the checkpoint partition of an event partition.
func (r *Recorder) Home(partition int) int { return takeover.Home(partition, r.Spread) }

// Write writes a checkpoint record that a takeover requires.
func (r *Recorder) Write(w takeover.Write) {
	rec := recordbatch.Record{Key: []byte(w.Key)}
	switch w.Kind {
	case record.OfEvent:
		rec.Value = record.Marshal(w.Entry)
	case record.OfTopic:
		w.State.Session, w.State.Writer = r.Session, r.Writer
		rec.Key, rec.Value = []byte(record.StateKey(r.Cluster, w.State.Topic)), record.Marshal(w.State)
	case record.Removed, record.Ignored:
	}
	r.add(w.Partition, rec)
}

func (r *Recorder) add(n int, rec recordbatch.Record) {
	r.counts[n].added.Add(1)
	r.Senders[n].Add(&sender.Item{Record: rec, Done: func(_ int64, err error) {
		if err != nil {
			r.Fail(err) // before a later record can be stored
			return
		}
		r.counts[n].stored.Add(1)
		r.stored.Changed()
	}})
}

// AwaitRoom blocks while too many checkpoint records of an event partition are not stored yet. It
// returns an error if ctx ends first.
func (r *Recorder) AwaitRoom(ctx context.Context, partition int) error {
	return r.stored.Await(ctx, func() bool {
		c := &r.counts[r.Home(partition)]
		return c.added.Load()-c.stored.Load() <= int64(r.Room)
	})
}

// Flush blocks until every record that was added before the call is stored, or ctx ends.
func (r *Recorder) Flush(ctx context.Context) error {
	until := make([]int64, len(r.counts))
	for n := range r.counts {
		until[n] = r.counts[n].added.Load()
	}
	return r.stored.Await(ctx, func() bool {
		for n := range r.counts {
			if r.counts[n].stored.Load() < until[n] {
				return false
			}
		}
		return true
	})
}
