package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// ErrPastEnd means that the log ends before an offset that a read needs: the topic was recreated, or
// lost acknowledged records.
var ErrPastEnd = fmt.Errorf("the log ends before the offset: %w", kafka.OffsetOutOfRange)

const (
	// fetchBytes is the size of a fetch of one partition, as stored.
	fetchBytes = 1 << 20
	// maxFetchBytes is the maximum size of a fetch. The size doubles up to it until the next
	// batch fits into the response.
	maxFetchBytes = 32 << 20
	// emptyResponses is the number of consecutive responses without records after which a read
	// fails. Each one waited for readWait.
	emptyResponses = 10
)

// cursor reads one partition.
type cursor struct {
	c         *Client
	topic     string
	partition int

	next     int64 // offset of the next record to deliver
	start    int64 // from this offset on, every record of the log was delivered
	bytes    int64 // size of the next fetch
	empty    int   // consecutive responses without a batch, before the end of the log
	atEnd    bool  // the last response reached the end of the log
	damaged  int64 // first offset of a batch whose checksum was wrong once; -1 for none
	consumer error // error of each; ends the read

	slots   *slots
	refused []func(Refused)
}

func (c *Client) cursor(topic string, partition int, from int64, bytes int64, refused []func(Refused)) *cursor {
	return &cursor{
		c: c, topic: topic, partition: partition, next: from, start: from, bytes: bytes, damaged: -1, slots: &c.ranges, refused: refused,
	}
}

var (
	// errThrottled means that the topic is missing from the response. Brokers send such a
	// response to a client that is over its quota (KIP-219).
	errThrottled = fmt.Errorf("the response is empty, probably because of the quota consumer_byte_rate: %w", kafka.ThrottlingQuotaExceeded)
	// errEmpty means that the response has no batch, before the end of the log.
	errEmpty = fmt.Errorf("the broker returned no records before the end of the log: %w", kafka.OffsetNotAvailable)
	// errNothing means that errEmpty occurred emptyResponses times in a row. Its kind is
	// [Never], so that the caller sees it.
	errNothing = errors.New("the broker repeatedly returned no records before the end of the log")
)

// fetch sends one request, which waits up to wait for a first record, and calls each with
// the records of [next, to).
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
	return r.c.denied(r.c.unrouted(ctx, err, r.topic, "Read"), onTopic("Read", r.topic))
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

// handleEmpty handles a response without a whole batch. At the end of the log it is expected. Before
// the end, either the broker could not read the records in time (KIP-405 reads old ones
// from remote storage), or compaction removed everything up to the end, and a response does
// not show which. Compaction is very unlikely, because the cleaner leaves the active
// segment alone, which has the last record. So the cursor never skips anything for it: it
// fetches again, and fails in the end.
func (r *cursor) handleEmpty(end int64) error {
	if end <= r.next {
		r.empty, r.atEnd = 0, true
		return nil
	}
	if r.empty++; r.empty < emptyResponses {
		return errEmpty
	}
	r.empty = 0
	return fmt.Errorf("%w: at offset %d, the log ends at %d", errNothing, r.next, end)
}

// reset handles an offset that is out of range.
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
