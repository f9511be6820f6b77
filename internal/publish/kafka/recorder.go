package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// recorder writes the checkpoint topic.
//
// A crash leaves it behind the event topics, and the next writer reads these from the
// highest offset that is recorded of each partition. So the record of an offset must
// never be stored before those of the lower offsets of its partition. They go through
// one lane for this reason: event partition p is recorded in checkpoint partition p,
// modulo their number, in the order in which the event's lane has them acknowledged.
// If the topic gets more partitions they are not used: an object that were recorded in
// another one than before would have its old record too, and no order between the two.
type recorder struct {
	cluster string
	lanes   []*lane
	spread  int         // of these are used, from the first on
	room    int         // records that may wait to be stored
	fail    func(error) // ends the session
	first   atomic.Bool // for a planted bug

	mu      sync.Mutex
	counts  []recorded    // by lane
	changed chan struct{} // closed when something is stored; nil while nobody waits
}

// recorded counts the records of one lane, which are stored in the order of add.
type recorded struct{ added, stored int }

// put records an event.
func (r *recorder) put(key []byte, e entry) {
	if failpoint.Bug("record-later-first") && e.Type == "" && r.first.CompareAndSwap(false, true) {
		return // those that come later are stored before it
	}
	r.add(e.Partition, recordbatch.Record{Key: key, Value: marshal(e)})
}

// forget records that an object has no events any more.
func (r *recorder) forget(key []byte, partition int) {
	r.add(partition, recordbatch.Record{Key: key})
}

// state records how a topic was found.
func (r *recorder) state(t topicState) {
	r.add(0, recordbatch.Record{Key: []byte(stateKey(r.cluster, t.Topic)), Value: marshal(t)})
}

func (r *recorder) add(partition int, record recordbatch.Record) {
	record.Timestamp = wallClock()
	n := partition % r.spread
	r.mu.Lock()
	r.counts[n].added++
	r.mu.Unlock()
	r.lanes[n].add(&item{record, func(_ int64, err error) {
		if err != nil {
			r.fail(err) // before a later one can be stored
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

// hasRoom blocks while too much is waiting to be stored, or until ctx ends.
func (r *recorder) hasRoom(ctx context.Context) error {
	return r.await(ctx, func() bool {
		waiting := 0
		for _, c := range r.counts {
			waiting += c.added - c.stored
		}
		return waiting <= r.room
	})
}

// flush blocks until all that was added before is stored, or ctx ends.
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

// await blocks until a condition of the counts holds, or ctx ends.
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
