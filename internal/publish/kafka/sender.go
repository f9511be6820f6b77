package kafka

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// item is one record in the queue of a sender.
type item struct {
	record recordbatch.Record
	// tombstone, if set, is the next record of the partition. Both records are always in one batch,
	// and brokers store and truncate whole batches.
	tombstone *recordbatch.Record
	// done is called exactly once, with the offset of the record or with an error. If the
	// chain of the error includes [publish.ErrNotSent], the record is not stored. The items
	// of one partition complete in the order of their offsets.
	done func(offset int64, err error)
}

// last returns the last record of the item.
func (it *item) last() recordbatch.Record {
	if it.tombstone != nil {
		return *it.tombstone
	}
	return it.record
}

// batchOf returns a batch of the first n items. It takes as many items as fit into a size in bytes,
// but at least one, and sets the timestamps of their records.
func batchOf(items []*item, limit int, timestamp time.Time) (batch *recordbatch.Batch, n int) {
	batch = &recordbatch.Batch{}
	for n < len(items) && (n == 0 || batch.SizeWith(items[n].record) <= limit) {
		it := items[n]
		it.record.Timestamp = timestamp
		batch.Append(it.record)
		if it.tombstone != nil {
			it.tombstone.Timestamp = timestamp
			batch.Append(*it.tombstone)
		}
		n++
	}
	return batch, n
}

// sender sends the records of one partition, one batch at a time. It resends a batch until the
// broker responds, with the same sequence numbers, so the broker recognizes a batch that it already
// stored. The partition receives every record once, in the order of add, even if requests or
// responses are lost.
//
// A sender sends a batch as soon as the previous batch is acknowledged. The batch has the records
// that were added by then, so the sender needs no linger time to fill it.
type sender struct {
	topic        string
	partition    int
	produce      produce
	producer     recordbatch.Producer
	codec        recordbatch.Compression
	limit        int                             // size limit of a batch in bytes, before compression
	ready        func(ctx context.Context) error // blocks while no batch may be sent; nil for no limit
	stall        time.Duration                   // age of an unacknowledged batch at which the sender counts as stalled
	fail         func(error)                     // ends the session
	attempted    func(s *sender, err error)      // called after every attempt, with its error
	sent         func(records, bytes int)        // called for every batch, for the metrics
	recordMarker func(unread int64)              // records the session's marker of an event partition; nil for the checkpoint topic

	mu           sync.Mutex
	waiting      []*item   // added, not in a batch yet
	closed       error     // why add fails; nil while it does not
	used         usage     // by events that are admitted and not complete
	since        time.Time // start of the batch in flight, or of the wait for ready; zero for none
	last         lastStored
	known        int64  // the sender has written or read every record below this offset, or has it in unread; 0 before the first record
	unread       []span // offsets that other writers have written, see readForeign
	markedUnread int64  // Unread in the recorded entry of the session's marker
	awake        chan struct{}

	// timestamp is the timestamp of the last batch, or the bound that notBefore set. The timestamps
	// of a key never decrease, because some readers consider the record with the latest timestamp
	// as the last one. The sender uses the current time instead of the time of the event, because
	// brokers use timestamps to expire producers (producer.id.expiration.ms,
	// ProducerStateManager.isProducerExpired). After a restart, a broker does not know a producer
	// whose last batch seems older than a day. It would then store a resent batch of that producer
	// a second time.
	timestamp time.Time

	// Used only by run.
	sequence int32
	buffer   []byte
}

// Bounds of the pause after a failed attempt.
const (
	minPause = 20 * time.Millisecond
	maxPause = 2 * time.Second
)

// add appends a record. It does not block.
func (s *sender) add(it *item) {
	s.mu.Lock()
	closed := s.closed
	if closed == nil {
		s.waiting = append(s.waiting, it)
	}
	s.mu.Unlock()
	if closed != nil {
		it.done(0, notSent(closed))
		return
	}
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

// withdraw removes an item that is not in a batch yet and reports whether it did. It does
// not call the item's done.
func (s *sender) withdraw(it *item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == it {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// run sends records until ctx ends. Then it completes all remaining items with an error.
func (s *sender) run(ctx context.Context) {
	for {
		items, batch := s.take(ctx)
		if len(items) == 0 {
			break
		}
		s.send(ctx, items, batch)
		s.working(false)
	}
	s.mu.Lock()
	s.closed = context.Cause(ctx)
	left := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, it := range left {
		it.done(0, notSent(context.Cause(ctx)))
	}
}

// isReady blocks until a batch may be sent. It returns false if ctx ended.
func (s *sender) isReady(ctx context.Context) bool {
	if s.ready != nil {
		s.working(true)
		defer s.working(false)
		if s.ready(ctx) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// take waits for records and returns as many as fit into a batch. It returns no items after ctx has
// ended.
func (s *sender) take(ctx context.Context) ([]*item, *recordbatch.Batch) {
	for {
		if !s.isReady(ctx) {
			return nil, nil
		}
		s.mu.Lock()
		s.timestamp = later(s.timestamp, wallClock())
		batch, n := batchOf(s.waiting, s.limit, s.timestamp)
		items := s.waiting[:n:n]
		if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
			s.waiting = nil // release the array of sent items
		}
		s.mu.Unlock()
		if len(items) > 0 {
			return items, batch
		}
		select {
		case <-s.awake:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// send sends one batch repeatedly, until the broker gives a final response or ctx ends.
func (s *sender) send(ctx context.Context, items []*item, batch *recordbatch.Batch) {
	encoded, err := batch.Encode(s.buffer[:0], s.codec, s.producer, s.sequence)
	if err != nil {
		complete(items, 0, err)
		return
	}
	s.buffer = encoded
	s.working(true)
	s.sent(batch.Len(), len(encoded))
	pause := minPause
	for maybeStored := false; ; {
		base, err := s.produce(ctx, s.topic, s.partition, encoded)
		if err == nil {
			s.attempted(s, nil)
			s.stored(items, batch.Len(), base)
			return
		}
		s.buffer = nil // the next batch does not reuse the memory, in case the failed attempt still reads it
		if ctx.Err() != nil {
			complete(items, 0, context.Cause(ctx))
			return
		}
		switch kind := failure.KindOf(err); {
		case kind == failure.Retry, kind == failure.Denied && maybeStored:
			maybeStored = true
			s.attempted(s, err)
		case kind == failure.TooLarge && !maybeStored:
			s.split(ctx, items, err)
			return
		case kind == failure.Denied, kind == failure.Never && !maybeStored:
			// No attempt can have been stored, so the next batch reuses the sequence.
			complete(items, 0, notSent(err))
			return
		default:
			s.fail(err)
			complete(items, 0, err)
			return
		}
		if sleep(ctx, pause) != nil {
			complete(items, 0, context.Cause(ctx))
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// stored completes the items of a batch after the broker has stored it. records is the number of
// records in the batch, and base is the offset of the first one.
func (s *sender) stored(items []*item, records int, base int64) {
	if end := s.end(); base < end {
		s.fail(fmt.Errorf("%w: a record was stored at offset %d of partition %d of topic %q, below the earlier end %d", errDataLost, base, s.partition, s.topic, end))
		complete(items, 0, errDataLost)
		return
	}
	r := items[len(items)-1].last()
	last := lastStored{base + int64(records), fingerprint(r.Key, r.Value, r.Headers), r.Value == nil}
	s.mu.Lock()
	s.last = last
	s.wrote(span{base, last.next})
	s.recordUnread()
	s.since = time.Time{}
	s.mu.Unlock()
	if s.producer.ID >= 0 {
		s.sequence = recordbatch.NextSequence(s.sequence, records)
	}
	complete(items, base, nil)
}

// split sends the halves of a batch that the broker rejected as too large. The rejected
// batch used no sequence numbers.
func (s *sender) split(ctx context.Context, items []*item, err error) {
	if len(items) == 1 {
		items[0].done(0, fmt.Errorf("%w: %w", publish.ErrTooLarge, err))
		return
	}
	head, tail := items[:len(items)/2], items[len(items)/2:]
	batch, _ := batchOf(head, math.MaxInt, items[0].record.Timestamp)
	s.send(ctx, head, batch)
	if ctx.Err() != nil {
		complete(tail, 0, notSent(context.Cause(ctx)))
		return
	}
	batch, _ = batchOf(tail, math.MaxInt, items[0].record.Timestamp)
	s.send(ctx, tail, batch)
}

// complete calls done for each item, in the order of the offsets.
func complete(items []*item, base int64, err error) {
	for _, it := range items {
		offset := base
		if base++; it.tombstone != nil {
			base++
		}
		it.done(offset, err)
	}
}
