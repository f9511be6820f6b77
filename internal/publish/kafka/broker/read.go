package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
)

// Record is one record. A nil Key means no key, and a nil Value a tombstone.
type Record struct {
	Offset     int64
	Time       time.Time
	Key, Value []byte
	Headers    []kafka.Header
}

const (
	readWait   = 500 * time.Millisecond // for the first record of a fetch
	followWait = 5 * time.Second
)

// Read calls each with every record of the partition with from <= offset < to, in order and
// once, on the goroutine of the caller, and returns when it has read the range. each must
// not keep or change the bytes and headers of a record, and must not call Read. Control
// batches are left out.
//
// Read skips batches that cannot be read, and calls refused with each, on the same
// goroutine.
//
// start is from, or greater if the log starts later: from start on, no record was left out.
// (If the log is truncated during the read, each may also have been called with records
// before start.) Offsets that compaction removed are skipped.
//
// Read retries errors of the kind [Retry] until ctx ends. It returns an error of each
// unchanged, [ErrPastEnd] if the log ends before from, or before to for about
// 5 s, [ErrNoTopic] if the topic does not exist, and any other error that a retry cannot fix.
func (c *Client) Read(ctx context.Context, topic string, partition int, from, to int64, each func(Record) error, refused ...func(Refused)) (start int64, err error) {
	r := c.cursor(topic, partition, from, fetchBytes, refused)
	if from < 0 {
		return from, fmt.Errorf("read topic %s, partition %d: offset %d is negative", topic, partition, from)
	}
	err = r.advanceTo(ctx, to, each)
	return r.start, err
}

// advanceTo reads up to an offset. A broker that is behind may show the end of the log too early for
// a while, so one response that shows it proves nothing.
func (r *cursor) advanceTo(ctx context.Context, to int64, each func(Record) error) (err error) {
	for ends := 0; err == nil && r.next < to; {
		if err = r.advance(ctx, to, readWait, each); !r.atEnd {
			ends = 0
		} else if ends++; err == nil && ends == emptyResponses {
			err = fmt.Errorf("topic %s, partition %d ends at offset %d, want %d: %w", r.topic, r.partition, r.next, to, ErrPastEnd)
		}
	}
	return err
}

// advance fetches until it gets records or reaches the end of the log.
func (r *cursor) advance(ctx context.Context, to int64, wait time.Duration, each func(Record) error) error {
	err := r.c.persist(ctx, r.topic, func() error { return r.fetch(ctx, to, wait, each) })
	if err != nil {
		return fmt.Errorf("read topic %s, partition %d from offset %d: %w", r.topic, r.partition, r.next, err)
	}
	return r.consumer
}

// ReadOne reads the record at an offset. The caller owns its bytes. found is false if the
// log has no record there: not yet, no longer, compacted, or in a batch that cannot be read.
// Errors are those of [Client.Read], except [ErrPastEnd].
func (c *Client) ReadOne(ctx context.Context, topic string, partition int, offset int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	rec, found, err = c.ReadStored(ctx, topic, partition, offset, refused...)
	if isPastEnd(err) {
		return Record{}, false, nil
	}
	return rec, found, err
}

// ReadStored is [Client.ReadOne] for an offset at which a record was stored. If the log
// ends before it, the error is [ErrPastEnd]: either the brokers lost the record, or the
// broker that responded is behind. A new leader does not know at first what is committed
// (KIP-207), and a former leader may not know that it was replaced.
func (c *Client) ReadStored(ctx context.Context, topic string, partition int, offset int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	r := c.cursor(topic, partition, offset, 1, refused) // brokers return at least one whole batch (KIP-74)
	r.slots = &c.singles
	for err == nil && r.next == offset && !r.atEnd {
		err = r.advance(ctx, offset+1, time.Millisecond, func(got Record) error {
			rec, found = got, true // no later record takes its memory
			return nil
		})
	}
	if err == nil && r.next == offset {
		err = fmt.Errorf("topic %s, partition %d, offset %d: %w", topic, partition, offset, ErrPastEnd)
	}
	return rec, found, err
}

// errEnough ends the read of ReadFirst.
var errEnough = errors.New("enough was read")

// ReadFirst reads the first record with from <= offset < to, and fetches little more. The
// caller owns its bytes. found is false if there is none. Errors are those of
// [Client.Read].
func (c *Client) ReadFirst(ctx context.Context, topic string, partition int, from, to int64, refused ...func(Refused)) (rec Record, found bool, err error) {
	r := c.cursor(topic, partition, from, 1, refused) // brokers return at least one whole batch (KIP-74)
	err = r.advanceTo(ctx, to, func(got Record) error {
		rec, found = got, true // no later record takes its memory
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rec, found, err
}

// Follow calls each with the records from an offset on, like Read, and with those written
// later. It runs until ctx ends and then returns the error of ctx. If the log starts later
// than from, it continues at the start of the log.
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
			c.log.Warn("log was truncated before it was read, continuing at its start", "topic", topic, "partition", partition, "offset", r.start)
		}
	}
}

// Fetches returns the number of fetch requests sent, including failed ones.
func (c *Client) Fetches() uint64 { return c.fetches.Load() }
