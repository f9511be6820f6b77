package recordbatch

import (
	"math/bits"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Overhead is the size in bytes of a batch without records: its header.
const Overhead = 61

// Header is one header of a record: a key in UTF-8 and a value. A nil value is null,
// which is not the same as empty. It is what kafka-go gives to readers.
type Header = protocol.Header

// Record is one record. A nil Key is no key and a nil Value a tombstone; neither is the
// same as empty.
type Record struct {
	Key, Value []byte
	Headers    []Header

	// Timestamp is written in milliseconds, rounded down. A time before 1970, the zero
	// Time among them, is written as «no timestamp», -1: brokers take no other negative
	// one.
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

// Batch holds the records of one batch. It shares their bytes, which must not change
// while it is in use. The zero value is an empty batch. It is not safe for concurrent
// use, except that any number of goroutines may encode it at once.
type Batch struct {
	records []Record
	size    int   // of the records as they are written, without the header
	first   int64 // timestamp of the first record, to which the others' are relative
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

// Len is the number of records.
func (b *Batch) Len() int { return len(b.records) }

// Records are those appended, in order. The slice is the batch's own.
func (b *Batch) Records() []Record { return b.records }

// Size is the size in bytes of the whole batch if it is not compressed, and the most
// that it takes if it is.
func (b *Batch) Size() int { return Overhead + b.size }

// SizeWith is what [Batch.Size] would be with r appended.
func (b *Batch) SizeWith(r Record) int {
	t := r.timestamp()
	first := b.first
	if len(b.records) == 0 {
		first = t
	}
	body := bodySize(&r, t-first, len(b.records))
	return Overhead + b.size + varintSize(int64(body)) + body
}

// Reset empties the batch, and keeps no record's bytes alive.
func (b *Batch) Reset() {
	clear(b.records)
	*b = Batch{records: b.records[:0]}
}

// Split divides the records, in order, into two batches of about the same size, for
// where the broker says MESSAGE_TOO_LARGE. Of fewer than two records tail is empty. B
// stays as it is.
//
// A batch that was refused so has used up no sequence: head takes that of b, and tail
// the one after ([NextSequence]).
func (b *Batch) Split() (head, tail *Batch) {
	head, tail = &Batch{}, &Batch{}
	for i, r := range b.records {
		if i == 0 || tail.Len() == 0 && head.SizeWith(r) <= Overhead+b.size/2 {
			head.Append(r)
		} else {
			tail.Append(r)
		}
	}
	return head, tail
}

// bodySize is the size of a record without the length that is written before it.
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

// varintSize is the size of v in the zigzag encoding of binary.AppendVarint.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v)<<1^uint64(v>>63)|1) + 6) / 7
}
