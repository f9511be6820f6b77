package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// ErrPastEnd says that a read begins past the end of the log: the topic was made anew, or
// lost records that had been acknowledged.
var ErrPastEnd = fmt.Errorf("the log ends before that offset: %w", kafka.OffsetOutOfRange)

const (
	// fetchBytes is how much of a partition is asked for at a time, as it is stored. What
	// comes is decompressed at once, and may be many times as large.
	fetchBytes = 1 << 20
	// maxFetchBytes is the most, for where less does not get past a batch.
	maxFetchBytes = 32 << 20
	// emptyAnswers is how many in a row it takes to believe that the log holds nothing
	// between an offset and its end.
	emptyAnswers = 3
)

// cursor reads one partition.
type cursor struct {
	c         *Client
	topic     string
	partition int

	next     int64 // offset of the next record to hand over
	start    int64 // from here on nothing that the log holds was left out
	bytes    int64 // to ask for
	empty    int   // answers in a row without any batch, before the log's end
	atEnd    bool  // the last answer showed that nothing is there yet
	scratch  []byte
	consumer error // what each returned; ends the reading
}

func (c *Client) cursor(topic string, partition int, from int64, bytes int64) *cursor {
	return &cursor{
		c: c, topic: topic, partition: partition, next: from, start: from, bytes: bytes,
		scratch: make([]byte, 0, 512), // not nil, which stands for no value
	}
}

var (
	// errThrottled is an answer without the topic, which is what brokers give when a
	// client is over its quota (KIP-219); kafka-go says that there is no topic.
	errThrottled = fmt.Errorf("the answer is empty, as of brokers that throttle (quota consumer_byte_rate): %w", kafka.ThrottlingQuotaExceeded)
	// errEmpty is an answer without a batch, although the log goes on.
	errEmpty = fmt.Errorf("the broker gives nothing, although the log goes on: %w", kafka.OffsetNotAvailable)
)

// fetch asks once, waiting up to wait for a first record, and gives each what came of
// [next, to).
func (r *cursor) fetch(ctx context.Context, to int64, wait time.Duration, each func(Record) error) error {
	started := time.Now()
	r.atEnd = false
	res, err := r.c.kafka.Fetch(ctx, &kafka.FetchRequest{
		Topic: r.topic, Partition: r.partition, Offset: r.next, MinBytes: 1, MaxBytes: r.bytes, MaxWait: wait,
	})
	if err == nil {
		err = res.Error
	}
	var unknown *protocol.TopicError // kafka-go found no place to send it to
	switch {
	case err == nil:
		return r.take(res, to, each)
	case errors.Is(err, kafka.OffsetOutOfRange):
		return r.reset(ctx)
	case errors.Is(err, protocol.ErrNoTopic) && !errors.As(err, &unknown):
		return errThrottled
	}
	r.c.transport.note(started, err)
	return r.c.denied(r.c.unrouted(ctx, err, r.topic, "Read"), onTopic("Read", r.topic))
}

// take hands over what an answer holds, and moves on.
func (r *cursor) take(res *kafka.FetchResponse, to int64, each func(Record) error) error {
	asked := r.next
	stream, _ := res.Records.(*protocol.RecordStream)
	if stream == nil || len(stream.Records) == 0 {
		return r.nothing(res.HighWatermark)
	}
	r.empty = 0
	for r.next < to && r.consumer == nil {
		rec, err := stream.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := r.give(rec, to, each); err != nil {
			return err
		}
	}
	if r.consumer != nil || r.next >= to {
		return nil
	}
	// All of these batches was seen, the last of which begins here or before and ends here
	// or later: kafka-go does not tell where. An offset is not skipped but for a batch that
	// would hold it.
	if last, ok := stream.Records[len(stream.Records)-1].(interface{ Offset() int64 }); ok {
		r.next = max(r.next, last.Offset()+1)
	}
	if r.next == asked {
		// One batch, whose last records compaction has removed, and a next that did not fit.
		r.next++
		r.bytes = min(2*r.bytes, maxFetchBytes)
	}
	return nil
}

// give hands over one record if it is asked for.
func (r *cursor) give(rec *protocol.Record, to int64, each func(Record) error) error {
	defer release(rec.Key)
	defer release(rec.Value)
	if rec.Offset < r.next { // the batch begins before the offset that was asked for
		return nil
	}
	if rec.Offset >= to {
		r.next = to
		return nil
	}
	r.scratch = slices.Grow(r.scratch[:0], size(rec.Key)+size(rec.Value))
	key, err := r.read(rec.Key)
	if err != nil {
		return err
	}
	value, err := r.read(rec.Value)
	if err != nil {
		return err
	}
	r.next = rec.Offset + 1
	r.consumer = each(Record{Offset: rec.Offset, Time: rec.Time, Key: key, Value: value, Headers: rec.Headers})
	return nil
}

// read copies b, which kafka-go has in pieces, to scratch, where there is room.
func (r *cursor) read(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	at := len(r.scratch)
	r.scratch = r.scratch[:at+b.Len()]
	_, err := io.ReadFull(b, r.scratch[at:])
	return r.scratch[at:len(r.scratch):len(r.scratch)], err
}

func size(b protocol.Bytes) int {
	if b == nil {
		return 0
	}
	return b.Len()
}

// release gives the memory back, for kafka-go to use again.
func release(b protocol.Bytes) {
	if b != nil {
		_ = b.Close() // it cannot fail
	}
}

// nothing deals with an answer without a batch. At the end of the log that is as it
// should be. Before it, it may be that compaction has removed all up to the end; or that
// the broker could not get at the records in time (KIP-405 reads old ones from afar),
// where to go on would leave them out. So it is asked again a few times.
func (r *cursor) nothing(end int64) error {
	if end <= r.next {
		r.empty, r.atEnd = 0, true
		return nil
	}
	if r.empty++; r.empty < emptyAnswers {
		return errEmpty
	}
	r.empty, r.next = 0, end
	return nil
}

// reset deals with an offset that is out of range.
func (r *cursor) reset(ctx context.Context) error {
	o, err := r.c.bounds(ctx, r.topic, r.partition)
	switch {
	case err != nil:
		return err
	case r.next < o.Start[0]:
		r.next, r.start = o.Start[0], o.Start[0]
		return nil
	case r.next > o.End[0]:
		return fmt.Errorf("%d is not in [%d, %d]: %w", r.next, o.Start[0], o.End[0], ErrPastEnd)
	}
	return fmt.Errorf("%d is said to be out of range, and is in [%d, %d]: %w", r.next, o.Start[0], o.End[0], kafka.OffsetNotAvailable)
}
