package sender

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// Bounds of the pause after a failed attempt.
const (
	minPause = 20 * time.Millisecond
	maxPause = 2 * time.Second
)

// send sends one batch repeatedly, until the broker gives a final response or ctx ends.
func (s *Sender) send(ctx context.Context, items []*Item, batch *recordbatch.Batch) {
	encoded, err := batch.Encode(s.buffer[:0], s.Codec, s.Producer, s.sequence)
	if err != nil {
		complete(items, 0, err)
		return
	}
	s.buffer = encoded
	s.working(true)
	s.Sent(batch.Len(), len(encoded))
	pause := minPause
	for maybeStored := false; ; {
		base, err := s.Produce(ctx, s.Topic, s.Partition, encoded)
		if err == nil {
			if s.failing {
				s.failing = false
				s.Attempted(s, nil)
			}
			s.stored(items, batch.Len(), base)
			return
		}
		s.buffer = nil // not reused, because the failed attempt might still be reading it
		if ctx.Err() != nil {
			complete(items, 0, context.Cause(ctx))
			return
		}
		switch kind := failure.KindOf(err); {
		case kind == failure.Retry, kind == failure.Denied && maybeStored:
			maybeStored, s.failing = true, true
			s.Attempted(s, err)
		case kind == failure.TooLarge && !maybeStored:
			s.split(ctx, items, err)
			return
		case kind == failure.Denied, kind == failure.Never && !maybeStored:
			// The batch is not stored, so the next batch reuses its sequence numbers.
			complete(items, 0, publish.NotSent(err))
			return
		default:
			s.Fail(err)
			complete(items, 0, err)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			complete(items, 0, context.Cause(ctx))
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// stored completes the items of a batch after the broker has stored it. records is the number of
// records in the batch, and base is the offset of the first one.
func (s *Sender) stored(items []*Item, records int, base int64) {
	if end := s.last.Next; base < end { // only Run changes last
		s.Fail(fmt.Errorf("%w: a record was stored at offset %d of partition %d of topic %q, below the known end %d", ErrDataLost, base, s.Partition, s.Topic, end))
		complete(items, 0, ErrDataLost)
		return
	}
	r := items[len(items)-1].last()
	last := LastStored{Next: base + int64(records), Tombstone: r.Value == nil, print: fingerprint(r.Key, r.Value, r.Headers)}
	s.mu.Lock()
	s.last = last
	s.wrote(Span{base, last.Next})
	s.recordUnread()
	s.mu.Unlock()
	s.working(false)
	if s.Producer.ID >= 0 {
		s.sequence = recordbatch.NextSequence(s.sequence, records)
	}
	complete(items, base, nil)
}

// split sends the halves of a batch that the broker rejected as too large. The rejected batch used
// no sequence numbers. If the batch has only one item, split completes the item with
// [publish.ErrTooLarge].
func (s *Sender) split(ctx context.Context, items []*Item, err error) {
	if len(items) == 1 {
		items[0].Done(0, fmt.Errorf("%w: %w", publish.ErrTooLarge, err))
		return
	}
	head, tail := items[:len(items)/2], items[len(items)/2:]
	batch, _ := batchOf(head, math.MaxInt, items[0].Record.Timestamp)
	s.send(ctx, head, batch)
	if ctx.Err() != nil {
		complete(tail, 0, publish.NotSent(context.Cause(ctx)))
		return
	}
	batch, _ = batchOf(tail, math.MaxInt, items[0].Record.Timestamp)
	s.send(ctx, tail, batch)
}

// LastStored identifies the last record that a sender stored. The zero value means none.
type LastStored struct {
	Next      int64 // the offset after the record; the sender has stored nothing at or above it
	Tombstone bool

	print [16]byte // of the record without its timestamp
}

// Is reports whether a record has the key, the value, and the headers of the last stored record.
func (l LastStored) Is(key, value []byte, headers []recordbatch.Header) bool {
	return fingerprint(key, value, headers) == l.print
}

// LastStored returns the last stored record.
func (s *Sender) LastStored() LastStored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// End returns the offset after the last stored record.
func (s *Sender) End() int64 { return s.LastStored().Next }

// fingerprint returns a hash of a record without its timestamp.
func fingerprint(key, value []byte, headers []recordbatch.Header) [16]byte {
	sum := sha256.New()
	add := func(b []byte) {
		sum.Write(binary.AppendVarint(nil, int64(len(b))))
		sum.Write(b)
	}
	add(key)
	add(value)
	for _, h := range headers {
		add([]byte(h.Key))
		add(h.Value)
	}
	return [16]byte(sum.Sum(nil)[:16])
}
