package recordbatch

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Limits for reading a batch. They bound the memory that a hostile producer can make a reader use: a
// batch of a few kilobytes can unpack to gigabytes.
const (
	// MaxRecord is the size in bytes of the largest record. The API server's watch delivers no
	// object over 16 MiB, and an event contains at most the object, its previous state, and a patch
	// with parts of both.
	MaxRecord = 64 << 20
	// MaxUnpacked is the uncompressed size in bytes of the largest batch. It exceeds the highest
	// value of KUBERELAY_KAFKA_BATCH_BYTES.
	MaxUnpacked = 128 << 20

	maxHeaders   = 1024 // headers per record
	maxHeaderKey = 1024 // in bytes
)

// ErrLarge means that a batch needs more memory than the caller of [Encoded.Open] allowed.
var ErrLarge = errors.New("a record exceeds the memory limit of the caller")

// Reader reads the records of one batch. It holds one record in memory, not the batch. It
// is not safe for concurrent use.
type Reader struct {
	batch   Encoded
	unpack  *unpacker
	source  *bufio.Reader
	largest int // size in bytes of the largest record
	record  []byte
	read    int   // number of records read
	next    int64 // lowest offset of the next record
}

// Open returns a Reader that allocates at most about largest bytes. If a record needs more,
// [Reader.Next] returns [ErrLarge]. The caller must close the Reader.
func (b Encoded) Open(largest int) (*Reader, error) {
	if b.malformed != nil {
		return nil, b.malformed
	}
	codec := b.codec
	if len(b.records) == 0 { // compaction left only the header
		codec = None
	}
	u, err := unpackerOf(codec, b.records, largest)
	if err != nil {
		return nil, err
	}
	return &Reader{batch: b, unpack: u, source: bufio.NewReader(u), largest: largest, next: b.First}, nil
}

// Close releases the memory of the Reader.
func (r *Reader) Close() { r.unpack.close() }

// Next returns the next record and its offset, and [io.EOF] after the last one. Any other error is
// [ErrLarge] or one of the reasons why a batch cannot be read. The next call of Next overwrites the
// record. Close does not.
func (r *Reader) Next() (Record, int64, error) {
	if r.read == r.batch.count {
		if _, err := r.source.ReadByte(); !errors.Is(err, io.EOF) {
			return Record{}, 0, r.failed(err, "bytes follow the last record")
		}
		return Record{}, 0, io.EOF
	}
	size, err := binary.ReadVarint(r.source)
	switch {
	case err != nil:
		return Record{}, 0, r.failed(err, "the length of a record")
	case size < 0:
		return Record{}, 0, r.failed(nil, "a record of negative length")
	case size > MaxRecord:
		return Record{}, 0, fmt.Errorf("%w: a record of %d bytes, want at most %d", ErrTooLarge, size, MaxRecord)
	case size > int64(r.largest):
		return Record{}, 0, ErrLarge
	}
	if err := r.fill(int(size)); err != nil {
		return Record{}, 0, r.failed(err, "a record")
	}
	record, d, err := parseRecord(r.record)
	if err != nil {
		return Record{}, 0, err
	}
	offset := r.batch.First + d.offset
	if d.offset < 0 || offset < r.next || offset > r.batch.Last {
		return Record{}, 0, r.failed(nil, "offsets are out of order")
	}
	r.next = offset + 1
	r.read++
	at := r.batch.earliest + d.timestamp
	if r.batch.appended {
		at = r.batch.latest
	}
	record.Timestamp = time.UnixMilli(at)
	return record, offset, nil
}

// fill reads n bytes. Its memory grows with the bytes that arrive, not with the length that the
// batch claims.
func (r *Reader) fill(n int) error {
	const step = 64 << 10
	r.record = r.record[:0]
	for len(r.record) < n {
		at := len(r.record)
		more := min(n-at, max(step, at))
		r.record = slices.Grow(r.record, more)[:at+more]
		if _, err := io.ReadFull(r.source, r.record[at:]); err != nil {
			return err
		}
	}
	return nil
}

// failed returns the error that Next reports for a batch. err is the error of the source, or nil if
// the batch contradicts itself. failed returns [ErrLarge], [ErrTooLarge], and [ErrMalformed]
// unchanged. Any other err means that the batch is malformed.
func (r *Reader) failed(err error, what string) error {
	switch {
	case errors.Is(err, ErrLarge), errors.Is(err, ErrTooLarge), errors.Is(err, ErrMalformed):
		return err
	case err == nil:
		return fmt.Errorf("%w: %s", ErrMalformed, what)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // callers take io.EOF as the end of the batch
	}
	return fmt.Errorf("%w: %s: %w", ErrMalformed, what, err)
}

// deltas are a record's timestamp and offset relative to those of the batch.
type deltas struct{ timestamp, offset int64 }

// parseRecord parses a record without its length field. The result shares the bytes of body.
func parseRecord(body []byte) (Record, deltas, error) {
	f := fields{left: body}
	f.bytes(1) // attributes: none are defined
	d := deltas{timestamp: f.varint(), offset: f.varint()}
	record := Record{Key: f.nullable(), Value: f.nullable()}
	headers := f.varint()
	switch {
	case headers > maxHeaders:
		return Record{}, d, fmt.Errorf("%w: a record with %d headers, want at most %d", ErrTooLarge, headers, maxHeaders)
	case headers < 0 || headers > int64(len(f.left)): // each header has at least two bytes
		f.failed = true
	case headers > 0:
		record.Headers = make([]Header, headers)
	}
	for i := range record.Headers {
		key := f.bytes(f.varint())
		if len(key) > maxHeaderKey {
			return Record{}, d, fmt.Errorf("%w: the key of a header has %d bytes, want at most %d", ErrTooLarge, len(key), maxHeaderKey)
		}
		record.Headers[i] = Header{Key: string(key), Value: f.nullable()}
	}
	if f.failed || len(f.left) > 0 {
		return Record{}, d, fmt.Errorf("%w: a record does not match its length", ErrMalformed)
	}
	return record, d, nil
}

// fields removes fields from the start of a record.
type fields struct {
	left   []byte
	failed bool
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.left)
	if n <= 0 {
		f.failed, f.left = true, nil
		return 0
	}
	f.left = f.left[n:]
	return v
}

func (f *fields) bytes(n int64) []byte {
	if n < 0 || n > int64(len(f.left)) {
		f.failed, f.left = true, nil
		return nil
	}
	b := f.left[:n:n]
	f.left = f.left[n:]
	return b
}

// nullable returns the value after its length. The length -1 means nil.
func (f *fields) nullable() []byte {
	n := f.varint()
	if n == -1 {
		return nil
	}
	return f.bytes(n)
}
