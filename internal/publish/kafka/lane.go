package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// item is one record on its way to a partition.
type item struct {
	record recordbatch.Record
	// done is called exactly once: with the record's offset, or with an error, whose
	// chain has [publish.ErrNotSent] where the record certainly is not stored.
	// Items of one partition are done with in the order of their offsets.
	done func(offset int64, err error)
}

// lane sends the records of one partition, one batch at a time, each again and
// again until the broker has answered: with the same sequence numbers, by which the
// broker knows a batch that it has stored already. So the partition has every
// record once, in the order of add, whatever is lost on the way.
//
// A batch goes as soon as the one before it is answered, with all that has been
// added meanwhile: it needs no pause to fill it.
type lane struct {
	topic     string
	partition int
	produce   produce
	producer  recordbatch.Producer
	codec     recordbatch.Compression
	limit     int                             // of a batch's size in bytes, before compression
	ready     func(ctx context.Context) error // blocks while no batch may go; nil for never
	fail      func(error)                     // ends the session
	trouble   func(l *lane, err error)        // told of every failed attempt, and with nil of a success after one
	sent      func(records, bytes int)        // told of every batch, for the metrics

	mu      sync.Mutex
	waiting []*item // added, and in no batch yet
	closed  error   // why no more can be added
	next    int64   // no record of ours is at this offset or a higher one
	awake   chan struct{}

	// Only run touches these.
	sequence int32
	buffer   []byte
}

// The pause after a failed attempt, and the longest that it grows to.
const (
	minPause = 20 * time.Millisecond
	maxPause = 2 * time.Second
)

// add appends a record. It does not block.
func (l *lane) add(it *item) {
	l.mu.Lock()
	closed := l.closed
	if closed == nil {
		l.waiting = append(l.waiting, it)
	}
	l.mu.Unlock()
	if closed != nil {
		it.done(0, notSent(closed))
		return
	}
	select {
	case l.awake <- struct{}{}:
	default:
	}
}

// withdraw takes an item back that is in no batch yet. Its done is not called.
func (l *lane) withdraw(it *item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == it {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// end is the offset after the last record that is stored.
func (l *lane) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// run sends what is added until ctx ends; then it completes all there is.
func (l *lane) run(ctx context.Context) {
	for {
		items, batch := l.take(ctx)
		if len(items) == 0 {
			break
		}
		l.send(ctx, items, batch)
	}
	l.mu.Lock()
	l.closed = context.Cause(ctx)
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, it := range left {
		it.done(0, notSent(context.Cause(ctx)))
	}
}

// take waits for records and gives as many as go into a batch, none once ctx has
// ended.
func (l *lane) take(ctx context.Context) ([]*item, *recordbatch.Batch) {
	for {
		if l.ready != nil && l.ready(ctx) != nil || ctx.Err() != nil {
			return nil, nil
		}
		l.mu.Lock()
		batch := &recordbatch.Batch{}
		for _, it := range l.waiting {
			if batch.Len() > 0 && batch.SizeWith(it.record) > l.limit {
				break
			}
			batch.Append(it.record)
		}
		items := l.waiting[:batch.Len():batch.Len()]
		if l.waiting = l.waiting[batch.Len():]; len(l.waiting) == 0 {
			l.waiting = nil // so that what was sent can be freed
		}
		l.mu.Unlock()
		if len(items) > 0 {
			return items, batch
		}
		select {
		case <-l.awake:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// send sends one batch until the broker has answered for good, or ctx ends.
func (l *lane) send(ctx context.Context, items []*item, batch *recordbatch.Batch) {
	encoded, err := batch.Encode(l.buffer[:0], l.codec, l.producer, l.sequence)
	if err != nil {
		complete(items, 0, err)
		return
	}
	l.buffer = encoded
	l.sent(batch.Len(), len(encoded))
	pause := minPause
	for doubtful := false; ; {
		base, err := l.produce(ctx, l.topic, l.partition, encoded)
		if err == nil {
			l.trouble(l, nil)
			l.stored(items, base)
			return
		}
		l.buffer = nil // the client may still be writing it to a connection
		if ctx.Err() != nil {
			complete(items, 0, context.Cause(ctx))
			return
		}
		switch kind := broker.KindOf(err); {
		case kind == broker.Retry, kind == broker.Denied && doubtful:
			doubtful = true
			l.trouble(l, err)
			if failpoint.Bug("retry-anew") {
				encoded, _ = batch.Encode(nil, l.codec, recordbatch.Producer{ID: -1, Epoch: -1}, recordbatch.NoSequence)
			}
		case kind == broker.TooLarge && !doubtful:
			l.split(ctx, items, batch, err)
			return
		case kind == broker.Denied, kind == broker.Never && !doubtful:
			// No attempt can have been stored, so the next batch may take its sequence.
			complete(items, 0, notSent(err))
			return
		default:
			l.fail(err)
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

// stored completes items that the broker has stored.
func (l *lane) stored(items []*item, base int64) {
	if end := l.end(); base < end {
		l.fail(fmt.Errorf("%w: a record came to offset %d of partition %d of topic %q, which had been at %d already", errWentBack, base, l.partition, l.topic, end))
		complete(items, 0, errWentBack)
		return
	}
	l.mu.Lock()
	l.next = base + int64(len(items))
	l.mu.Unlock()
	if l.producer.ID >= 0 {
		l.sequence = recordbatch.NextSequence(l.sequence, len(items))
	}
	complete(items, base, nil)
}

// split sends the halves of a batch that the broker finds too large. It has used up
// no sequence.
func (l *lane) split(ctx context.Context, items []*item, batch *recordbatch.Batch, err error) {
	if len(items) == 1 {
		items[0].done(0, fmt.Errorf("%w: %w", publish.ErrTooLarge, err))
		return
	}
	head, tail := batch.Split()
	l.send(ctx, items[:head.Len()], head)
	if ctx.Err() != nil {
		complete(items[head.Len():], 0, notSent(context.Cause(ctx)))
		return
	}
	l.send(ctx, items[head.Len():], tail)
}

// complete tells items what became of them, in the order of their offsets.
func complete(items []*item, base int64, err error) {
	for i, it := range items {
		it.done(base+int64(i), err)
	}
}

func notSent(err error) error {
	if errors.Is(err, publish.ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", publish.ErrNotSent, err)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
