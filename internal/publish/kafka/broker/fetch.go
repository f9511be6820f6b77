package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/advice"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// ErrPastEnd means that the log ends before an offset that a read needs. The topic was recreated, it
// lost acknowledged records, or the broker that responded is behind.
var ErrPastEnd = fmt.Errorf("the log ends before the offset: %w", kafka.OffsetOutOfRange)

const (
	// fetchBytes is the size limit of a fetch from one partition, in bytes as stored.
	fetchBytes = 1 << 20
	// maxFetchBytes is the largest size limit of a fetch. The limit doubles until the next batch
	// fits into the response, or until it reaches maxFetchBytes.
	maxFetchBytes = 32 << 20
	// emptyResponses is the number of consecutive responses without records after which a read
	// fails. In [Client.Read], the broker waits up to readWait before each response.
	emptyResponses = 10
)

// cursor reads one partition.
type cursor struct {
	c         *Client
	topic     string
	partition int

	next     int64 // offset of the next record to deliver
	start    int64 // every record of the log from start to next was delivered
	bytes    int64 // size limit of the next fetch
	empty    int   // consecutive responses without a batch, before the end of the log
	atEnd    bool  // the last response reached the end of the log
	damaged  int64 // first offset of a batch whose checksum was wrong once; -1 for none
	consumer error // the error that each returned; it ends the read

	slots   *slots
	refused []func(Refused)
}

func (c *Client) cursor(topic string, partition int, from int64, bytes int64, refused []func(Refused)) *cursor {
	return &cursor{
		c: c, topic: topic, partition: partition, next: from, start: from, bytes: bytes, damaged: -1, slots: &c.ranges, refused: refused,
	}
}

var (
	// errThrottled means that the topic is missing from the response. Brokers omit it when a
	// client is over its quota (KIP-219).
	errThrottled = fmt.Errorf("the response is empty, probably because of the quota consumer_byte_rate: %w", kafka.ThrottlingQuotaExceeded)
	// errEmpty means that the response contains no batch, although the log continues.
	errEmpty = fmt.Errorf("the broker returned no records before the end of the log: %w", kafka.OffsetNotAvailable)
	// errNothing means that emptyResponses consecutive responses contained no batch. Its kind
	// is [failure.Never], so the read fails and the caller receives the error.
	errNothing = errors.New("the broker repeatedly returned no records before the end of the log")
)

// fetch sends one request and passes the received records in the range [next, to) to each. The
// broker waits up to wait for a first record.
func (r *cursor) fetch(ctx context.Context, to int64, wait time.Duration, each func(Record) error) error {
	started := time.Now()
	r.atEnd = false
	r.c.fetches.Add(1)
	res, err := r.c.fetchOnce(ctx, r.topic, r.partition, r.next, r.bytes, wait)
	switch {
	case err == nil:
		return r.take(ctx, res, to, each)
	case errors.Is(err, kafka.OffsetOutOfRange):
		return r.reset(ctx)
	}
	r.c.transport.note(started, err)
	return r.c.advisor.Denied(r.c.unrouted(ctx, err, r.topic, "Read"), advice.OnTopic("Read", r.topic))
}

// take delivers the records of a response and advances the cursor.
func (r *cursor) take(ctx context.Context, res fetched, to int64, each func(Record) error) error {
	asked := r.next
	batch, rest, ok := recordbatch.Cut(res.records)
	if !ok && len(res.records) > 0 {
		r.bytes = min(2*max(r.bytes, fetchBytes), maxFetchBytes) // the batch did not fit
	}
	for ; ok && r.consumer == nil && r.next < to; batch, rest, ok = recordbatch.Cut(rest) {
		if err := r.takeBatch(ctx, batch, to, each); err != nil {
			return err
		}
	}
	if r.consumer == nil && r.next == asked {
		return r.handleEmpty(res.end)
	}
	r.empty = 0
	return nil
}

// handleEmpty handles a response that did not advance the cursor. At the end of the log, this is
// expected. Before the end, the response has two possible causes, which the cursor cannot tell
// apart. Either the broker could not read the records in time, for example from remote storage
// (KIP-405), or compaction removed all records up to the end. Compaction is very unlikely, because
// the cleaner does not touch the active segment, which contains the last record. The cursor
// therefore never skips records. It fetches again, and fails after emptyResponses attempts.
func (r *cursor) handleEmpty(end int64) error {
	if end <= r.next {
		r.empty, r.atEnd = 0, true
		return nil
	}
	if r.empty++; r.empty < emptyResponses {
		return errEmpty
	}
	r.empty = 0
	return fmt.Errorf("%w: no records at offset %d, and the log ends at %d", errNothing, r.next, end)
}

// reset handles an offset that a broker reports as out of range. If the log starts later, the
// cursor continues at the start of the log.
func (r *cursor) reset(ctx context.Context) error {
	o, err := r.c.bounds(ctx, r.topic, r.partition)
	switch {
	case err != nil:
		return err
	case r.next < o.Start[0]:
		r.next, r.start = o.Start[0], o.Start[0]
		return nil
	case r.next > o.End[0]:
		return fmt.Errorf("offset %d is not in [%d, %d]: %w", r.next, o.Start[0], o.End[0], ErrPastEnd)
	}
	return fmt.Errorf("the broker reported offset %d out of range, but it is in [%d, %d]: %w", r.next, o.Start[0], o.End[0], kafka.OffsetNotAvailable)
}

// Refused is a batch, or the rest of a batch, that cannot be read. The forwarder's own batches
// are never refused.
type Refused struct {
	Topic       string
	Partition   int
	First, Last int64 // offsets that were skipped
	Err         error // wraps one of the reasons in package recordbatch
}

// slots bound the memory for unpacked batches: one slot per CPU for batches of small records, and
// one slot for a batch with large records. A read holds one slot at a time. A read of many records
// holds its slot while it calls its consumer, and the consumer can read a single record. The two
// kinds of reads use separate slots, so they cannot deadlock.
type slots struct{ small, large chan struct{} }

// smallRecord is the maximum size of a small record, in bytes.
const smallRecord = 1 << 20

func newSlots() slots {
	return slots{make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, 1)}
}

// errDamaged means that the checksum of a batch is wrong. The cursor fetches the batch once
// more, because the network might have damaged the response.
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
