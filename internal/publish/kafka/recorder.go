package kafka

import (
	"context"
	"slices"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// recorder writes the checkpoint topic.
//
// After a crash, the checkpoint topic is behind the event topics, and the next writer reads
// each event partition from its highest recorded offset. So the entry of an offset must
// never be stored before the entries of lower offsets of the same partition. One sender per
// checkpoint partition guarantees that order: event partition p is recorded in checkpoint
// partition p modulo spread, in the order of the acknowledgements. The writer's marker of
// an event partition is recorded in the same checkpoint partition, after everything before
// the marker. The marker's entry vouches for the entries before it. If the checkpoint
// partition loses its end, the marker's entry is lost first.
//
// If the checkpoint topic gets more partitions, they are not used. Otherwise an object
// could have entries in two partitions, with no order between them.
type recorder struct {
	cluster string
	session string // identifies the writer of a topic's state to people, as writer does
	writer  string
	senders []*sender
	spread  int         // number of senders used, from the first on
	room    int         // limit of unstored records per sender
	fail    func(error) // ends the session

	mu      sync.Mutex
	counts  []recordCounts // by sender
	changed chan struct{}  // closed when a record is stored; nil while nobody waits
}

// recordCounts has the numbers of records of one sender. They are stored in the order of add.
type recordCounts struct{ added, stored int }

// put records an event.
func (r *recorder) put(key []byte, e entry) {
	r.add(r.home(e.Partition), recordbatch.Record{Key: key, Value: record.Marshal(e)})
}

// forget records that a key has no event any more in an event partition.
func (r *recorder) forget(key []byte, partition int) { r.erase(key, r.home(partition)) }

// erase removes the entry of a key from a checkpoint partition.
func (r *recorder) erase(key []byte, home int) { r.add(home, recordbatch.Record{Key: key}) }

// home returns the checkpoint partition of an event partition.
func (r *recorder) home(partition int) int { return takeover.Home(partition, r.spread) }

// write records what a takeover found.
func (r *recorder) write(w takeover.Write) {
	rec := recordbatch.Record{Key: []byte(w.Key)}
	switch w.Kind {
	case record.OfEvent:
		rec.Value = record.Marshal(w.Entry)
	case record.OfTopic:
		w.State.Session, w.State.Writer = r.session, r.writer
		rec.Key, rec.Value = []byte(record.StateKey(r.cluster, w.State.Topic)), record.Marshal(w.State)
	case record.Removed, record.Ignored:
	}
	r.add(w.Partition, rec)
}

func (r *recorder) add(n int, rec recordbatch.Record) {
	r.mu.Lock()
	r.counts[n].added++
	r.mu.Unlock()
	r.senders[n].add(&item{record: rec, done: func(_ int64, err error) {
		if err != nil {
			r.fail(err) // before a later record can be stored
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.counts[n].stored++
		if r.changed != nil {
			close(r.changed)
			r.changed = nil
		}
	}})
}

// hasRoom blocks while too many records of an event partition are not stored yet, or until
// ctx ends.
func (r *recorder) hasRoom(ctx context.Context, partition int) error {
	return r.await(ctx, func() bool {
		c := r.counts[r.home(partition)]
		return c.added-c.stored <= r.room
	})
}

// flush blocks until every record added before is stored, or ctx ends.
func (r *recorder) flush(ctx context.Context) error {
	r.mu.Lock()
	until := slices.Clone(r.counts)
	r.mu.Unlock()
	return r.await(ctx, func() bool {
		for n, c := range r.counts {
			if c.stored < until[n].added {
				return false
			}
		}
		return true
	})
}

// await blocks until a condition on the counts holds, or ctx ends.
func (r *recorder) await(ctx context.Context, holds func() bool) error {
	for {
		r.mu.Lock()
		if holds() {
			r.mu.Unlock()
			return nil
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
