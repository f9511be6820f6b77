package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
)

// Record is one record. A nil Key means that the record has no key. A nil Value means that the
// record is a tombstone.
type Record struct {
	Offset     int64
	Time       time.Time
	Key, Value []byte
	Headers    []kafka.Header
}

const (
	readWait   = 500 * time.Millisecond // how long a broker waits for the first record of a fetch
	followWait = 5 * time.Second        // the same, in Follow
)

// Read reads the records of a partition with from <= offset < to. The callback each receives
// every record once, in order, on the caller's goroutine. Read returns when it has read the
// range. each must not keep or change the bytes and headers of a record, and must not call
// Read. Read skips control batches.
//
// Read also skips batches that cannot be read. It calls refused for every such batch, on the
// same goroutine.
//
// Read delivers every record from start on. start is from, or a greater offset if the log starts
// later. If the start of the log moves during the read, each might also have received records before
// start. Read skips offsets that compaction removed.
//
// Read retries errors of the kind [failure.Retry] until ctx ends. It returns these errors:
//
//   - an error that each returned, unchanged
//   - [ErrPastEnd] if the log ends before from, or ends before to and does not grow for about 5 s
//   - [ErrNoTopic] if the topic does not exist
//   - any other error that a retry cannot fix
func (c *Client) Read(ctx context.Context, topic string, partition int, from, to int64, each func(Record) error, refused ...func(Refused)) (start int64, err error) {
	r := c.cursor(topic, partition, from, fetchBytes, refused)
	if from < 0 {
		return from, fmt.Errorf("read topic %s, partition %d: offset %d is negative", topic, partition, from)
	}
	err = r.advanceTo(ctx, to, each)
	return r.start, err
}

// advanceTo reads the records before the offset to. A broker that is behind can report the end of the
// log too early for a while. advanceTo therefore returns [ErrPastEnd] only after emptyResponses
// consecutive responses that report the end.
func (r *cursor) advanceTo(ctx context.Context, to int64, each func(Record) error) (err error) {
	for ends := 0; err == nil && r.next < to; {
		if err = r.advance(ctx, to, readWait, each); !r.atEnd {
			ends = 0
		} else if ends++; err == nil && ends == emptyResponses {
			err = fmt.Errorf("topic %s, partition %d ends at offset %d, before offset %d: %w", r.topic, r.partition, r.next, to, ErrPastEnd)
		}
	}
	return err
}

// advance fetches until it receives records or reaches the end of the log.
func (r *cursor) advance(ctx context.Context, to int64, wait time.Duration, each func(Record) error) error {
	err := r.c.persist(ctx, r.topic, func() error { return r.fetch(ctx, to, wait, each) })
	if err != nil {
		return fmt.Errorf("read topic %s, partition %d from offset %d: %w", r.topic, r.partition, r.next, err)
	}
	return r.consumer
}

// ReadOne reads the record at an offset. The caller owns the record's bytes. found is false if
// the offset is not yet written, no longer in the log, removed by compaction, or in a batch that
// cannot be read. ReadOne returns the same errors as [Client.Read], except [ErrPastEnd].
func (c *Client) ReadOne(ctx context.Context, topic string, partition int, offset int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	rec, found, err = c.ReadStored(ctx, topic, partition, offset, refused...)
	if errors.Is(err, ErrPastEnd) {
		return Record{}, false, nil
	}
	return rec, found, err
}

// ReadStored is [Client.ReadOne] for an offset at which a record was stored. If the log ends
// before that record, the error is [ErrPastEnd]: either the brokers lost the record, or the
// broker that responded is behind. A new leader does not know at first which records are
// committed (KIP-207), and a former leader might not know that it was replaced.
func (c *Client) ReadStored(ctx context.Context, topic string, partition int, offset int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	r := c.cursor(topic, partition, offset, 1, refused) // brokers return at least one whole batch (KIP-74)
	r.slots = &c.singles
	for err == nil && r.next == offset && !r.atEnd {
		err = r.advance(ctx, offset+1, time.Millisecond, func(got Record) error {
			rec, found = got, true // the cursor decodes no later record into this memory
			return nil
		})
	}
	if err == nil && r.next == offset {
		err = fmt.Errorf("topic %s, partition %d, offset %d: %w", topic, partition, offset, ErrPastEnd)
	}
	return rec, found, err
}

// errEnough ends the read of ReadFirst after the first record.
var errEnough = errors.New("enough was read")

// ReadFirst reads the first record with from <= offset < to. It usually fetches only the batch
// of that record. The caller owns the record's bytes. found is false if the range contains no
// record. ReadFirst returns the same errors as [Client.Read].
func (c *Client) ReadFirst(ctx context.Context, topic string, partition int, from, to int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	r := c.cursor(topic, partition, from, 1, refused) // brokers return at least one whole batch (KIP-74)
	err = r.advanceTo(ctx, to, func(got Record) error {
		rec, found = got, true // the cursor decodes no later record into this memory
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rec, found, err
}

// Follow calls each for every record from an offset on, like [Client.Read], including the records
// that are written later. It runs until ctx ends, each returns an error, or a read fails with an
// error that a retry cannot fix. If the log starts later than from, Follow continues at the start
// of the log.
func (c *Client) Follow(ctx context.Context, topic string, partition int, from int64, each func(Record) error, refused ...func(Refused)) error {
	r := c.cursor(topic, partition, from, fetchBytes, refused)
	for {
		start := r.start
		if err := r.advance(ctx, math.MaxInt64, followWait, each); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.start != start {
			c.log.Warn("records were removed before they were read, continuing at the start of the log", "topic", topic, "partition", partition, "offset", r.start)
		}
	}
}

// Fetches returns the number of fetch requests sent, including failed ones.
func (c *Client) Fetches() uint64 { return c.fetches.Load() }
