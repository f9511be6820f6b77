package broker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

// Record is one record. A nil Key is no key, and a nil Value a tombstone.
type Record struct {
	Offset     int64
	Time       time.Time
	Key, Value []byte
	Headers    []kafka.Header
}

const (
	readWait   = 500 * time.Millisecond // for records that are to come
	followWait = 5 * time.Second
)

// Read gives each every record that the partition holds with from <= offset < to, in
// order and once, on its own goroutine, and returns when there can be no more of them.
// The bytes of a record, and its headers, may not be kept or changed after each has
// returned. Records of control batches are left out.
//
// Start is from, or greater where the log no longer goes back so far: from start on
// nothing was left out. (If the log is cut while it is read, records before start may
// have been given.) Offsets that compaction has emptied are passed over.
//
// What is of the kind [Retry] is tried again until ctx ends, and so is waiting for
// offsets that are not written yet. Read ends with the error of each, as it is; with
// [ErrPastEnd] if from is past the end of the log; with [ErrNoTopic] if the topic is
// gone; or with another that a retry does not cure.
func (c *Client) Read(ctx context.Context, topic string, partition int, from, to int64, each func(Record) error) (start int64, err error) {
	r := c.cursor(topic, partition, from, fetchBytes)
	if from < 0 {
		return from, fmt.Errorf("read topic %s, partition %d: offset %d is negative", topic, partition, from)
	}
	for r.next < to && err == nil {
		err = r.advance(ctx, to, readWait, each)
	}
	return r.start, err
}

// advance makes one fetch that brings something, or shows that nothing is there.
func (r *cursor) advance(ctx context.Context, to int64, wait time.Duration, each func(Record) error) error {
	err := r.c.persist(ctx, r.topic, func() error { return r.fetch(ctx, to, wait, each) })
	if err != nil {
		return fmt.Errorf("read topic %s, partition %d from offset %d: %w", r.topic, r.partition, r.next, err)
	}
	return r.consumer
}

// ReadOne reads the record at the offset. Its bytes are the caller's. Found is false where
// the log holds none: not yet, no longer, or compacted. Errors are those of [Client.Read],
// but for [ErrPastEnd].
func (c *Client) ReadOne(ctx context.Context, topic string, partition int, offset int64) (rec Record, found bool, err error) {
	r := c.cursor(topic, partition, offset, 1) // brokers give one whole batch at least (KIP-74)
	for err == nil && r.next == offset && !r.atEnd {
		err = r.advance(ctx, offset+1, time.Millisecond, func(got Record) error {
			rec, found = got, true
			rec.Key, rec.Value = slices.Clone(got.Key), slices.Clone(got.Value)
			return nil
		})
	}
	if isPastEnd(err) {
		return Record{}, false, nil
	}
	return rec, found, err
}

// Follow gives each the records from an offset on, as Read does, and goes on with those
// that are written later, until ctx ends, whose error it then returns. Where the log no
// longer goes back so far, it goes on at its start.
func (c *Client) Follow(ctx context.Context, topic string, partition int, from int64, each func(Record) error) error {
	r := c.cursor(topic, partition, from, fetchBytes)
	for {
		start := r.start
		if err := r.advance(ctx, math.MaxInt64, followWait, each); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.start != start {
			c.log.Warn("the log was cut before it was read, going on at its start", "topic", topic, "partition", partition, "offset", r.start)
		}
	}
}
