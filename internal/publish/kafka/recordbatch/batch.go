package recordbatch

import (
	"math/bits"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Overhead is the size in bytes of the batch header, which is also the size of an empty batch.
const Overhead = 61

// Header is one header of a record: a UTF-8 key and a value. A nil value is null, which differs from
// empty. kafka-go passes this type to readers.
type Header = protocol.Header

// Record is one record. A nil Key means no key, and a nil Value means a tombstone. An empty Key or
// Value is not the same as nil.
type Record struct {
	Key, Value []byte
	Headers    []Header

	// Timestamp is written in milliseconds, rounded down. A time before 1970, including the zero
	// Time, is written as -1, which means no timestamp. Brokers reject other negative values.
	Timestamp time.Time
}

// noTimestamp is RecordBatch.NO_TIMESTAMP of the Java client.
const noTimestamp = -1

func (r Record) timestamp() int64 {
	if r.Timestamp.Unix() < 0 {
		return noTimestamp
	}
	return r.Timestamp.UnixMilli()
}

// Batch holds the records of one batch. It shares their bytes, which must not change while the batch
// is in use. The zero value is an empty batch. A Batch is not safe for concurrent use, except that
// several goroutines may encode it concurrently.
type Batch struct {
	records []Record
	size    int   // encoded size of the records, without the batch header
	first   int64 // timestamp of the first record; the others are relative to it
	max     int64 // greatest timestamp
}

// Append adds a record at the end.
func (b *Batch) Append(r Record) {
	b.size = b.SizeWith(r) - Overhead
	t := r.timestamp()
	if len(b.records) == 0 {
		b.first, b.max = t, t
	}
	b.max = max(b.max, t)
	b.records = append(b.records, r)
}

// Len returns the number of records.
func (b *Batch) Len() int { return len(b.records) }

// Size returns the size in bytes of the batch without compression. A compressed batch is never
// larger.
func (b *Batch) Size() int { return Overhead + b.size }

// SizeWith returns the [Batch.Size] that the batch would have after Append(r).
func (b *Batch) SizeWith(r Record) int {
	t := r.timestamp()
	first := b.first
	if len(b.records) == 0 {
		first = t
	}
	body := bodySize(&r, t-first, len(b.records))
	return Overhead + b.size + varintSize(int64(body)) + body
}

// bodySize returns the encoded size of a record without its length prefix.
func bodySize(r *Record, timestampDelta int64, offsetDelta int) int {
	n := 1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)) + // 1: attributes
		bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1 // the length -1
	}
	return varintSize(int64(len(b))) + len(b)
}

// varintSize returns the size of v in the zigzag encoding of binary.AppendVarint.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v)<<1^uint64(v>>63)|1) + 6) / 7
}
