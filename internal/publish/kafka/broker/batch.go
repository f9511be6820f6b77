package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// Refused is a batch, or the rest of a batch, that cannot be read. The forwarder's own batches
// are never refused.
type Refused struct {
	Topic       string
	Partition   int
	First, Last int64 // offsets that were skipped
	Err         error // its chain includes one of the reasons in package recordbatch
}

// slots bound the memory for unpacked batches: one slot per CPU for batches of small records,
// and one slot for a batch with large records. A read holds one slot at a time. A read of many
// records holds its slot while it calls its consumer, and the consumer may read a single
// record. The two kinds of reads therefore use separate slots, so they cannot deadlock.
type slots struct{ small, large chan struct{} }

// smallRecord is the maximum size of a small record, in bytes.
const smallRecord = 1 << 20

func newSlots() slots {
	return slots{make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, 1)}
}

// errDamaged means that the checksum of a batch is wrong. The cursor fetches the batch once
// more, because the network may have damaged the response.
var errDamaged = fmt.Errorf("%w: %w", recordbatch.ErrChecksum, kafka.InvalidMessage)

// takeBatch delivers the records of a batch and advances the cursor past the batch.
func (r *cursor) takeBatch(ctx context.Context, b recordbatch.Encoded, to int64, each func(Record) error) error {
	err := r.unpack(ctx, b, to, smallRecord, r.slots.small, each)
	if errors.Is(err, recordbatch.ErrLarge) {
		err = r.unpack(ctx, b, to, recordbatch.MaxRecord, r.slots.large, each)
	}
	switch {
	case err == nil:
	case errors.Is(err, recordbatch.ErrChecksum) && r.damaged != b.First:
		r.damaged = b.First
		return errDamaged
	case ctx.Err() != nil:
		return err
	default:
		for _, f := range r.refused {
			f(Refused{r.topic, r.partition, min(max(r.next, b.First), b.Last), b.Last, err})
		}
	}
	if r.consumer == nil && r.next < to {
		r.next = max(r.next, b.Last+1)
	}
	return nil
}

// unpack delivers the records of a batch from the cursor's next offset up to, but not including,
// to. It holds a slot until it returns.
func (r *cursor) unpack(ctx context.Context, b recordbatch.Encoded, to int64, largest int, slot chan struct{}, each func(Record) error) error {
	if b.Control || b.Last < r.next {
		return nil
	}
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	records, err := b.Open(largest)
	if err != nil {
		return err
	}
	defer records.Close()
	for r.consumer == nil && r.next < to {
		rec, offset, err := records.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case offset < r.next: // the batch starts before the requested offset
		case offset >= to:
			r.next = to
		default:
			r.next = offset + 1
			r.consumer = each(Record{Offset: offset, Time: rec.Timestamp, Key: rec.Key, Value: rec.Value, Headers: rec.Headers})
		}
	}
	return nil
}
