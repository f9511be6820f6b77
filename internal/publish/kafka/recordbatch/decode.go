package recordbatch

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// Why a batch cannot be read. A reader skips such a batch.
var (
	// ErrTooLarge: the batch, or a record in it, unpacks to more than [MaxUnpacked] or
	// [MaxRecord].
	ErrTooLarge = errors.New("too large")
	// ErrMalformed: what the batch says of itself is wrong.
	ErrMalformed = errors.New("malformed")
	// ErrUnsupported: the batch has another format than v2, or an unknown compression.
	ErrUnsupported = errors.New("unsupported format")
	// ErrChecksum: the bytes are not those that the producer sent.
	ErrChecksum = errors.New("wrong checksum")
)

// Encoded is one batch of a fetch response.
type Encoded struct {
	// First and Last are the offsets of the batch. Compaction can remove records, including
	// the first and the last.
	First, Last int64
	// Control is set on the markers of transactions, which hold no records for consumers.
	Control bool

	codec     Compression
	appended  bool // all records have the time at which the broker appended them: latest
	earliest  int64
	latest    int64
	count     int
	records   []byte
	malformed error // why it cannot be read
}

// Offsets of the fields of a batch header, besides those in encode.go.
const (
	magicAt     = crcAt - 1
	lastDeltaAt = 23
	earliestAt  = 27
	latestAt    = 35
	countAt     = 57
)

// Bits of the attributes of a batch.
const (
	compressionBits = 0x07
	appendTimeBit   = 0x08
	controlBit      = 0x20
)

// maxOffset is the highest offset that is accepted. It leaves room for additions.
const maxOffset = math.MaxInt64 >> 1

// Cut returns the first batch of the records of a fetch response, and the rest. ok is false
// if the records have no whole batch: brokers cut off a response at the requested size. The
// batch shares the bytes.
//
// The batch has offsets even if it cannot be read; then [Encoded.Open] returns the reason.
func Cut(records []byte) (b Encoded, rest []byte, ok bool) {
	if len(records) <= magicAt {
		return Encoded{}, nil, false
	}
	be := binary.BigEndian
	first := int64(be.Uint64(records))
	size := int64(int32(be.Uint32(records[lengthAt:]))) + lengthAt + 4 // it counts what follows it
	switch {
	case first < 0 || first > maxOffset:
		return Encoded{malformed: ErrMalformed}, nil, true
	case size <= magicAt: // the rest cannot be found
		return Encoded{First: first, Last: first, malformed: ErrMalformed}, nil, true
	case size > int64(len(records)):
		return Encoded{}, nil, false
	}
	batch, rest := records[:size], records[size:]
	b = Encoded{First: first, Last: first}
	switch {
	case batch[magicAt] != 2:
		b.malformed = ErrUnsupported
		return b, rest, true
	case len(batch) < Overhead, int32(be.Uint32(batch[lastDeltaAt:])) < 0:
		b.malformed = ErrMalformed
		return b, rest, true
	}
	attributes := be.Uint16(batch[attributesAt:])
	b.Last += int64(be.Uint32(batch[lastDeltaAt:]))
	b.Control = attributes&controlBit != 0
	b.codec, b.appended = Compression(attributes&compressionBits), attributes&appendTimeBit != 0
	b.earliest, b.latest = int64(be.Uint64(batch[earliestAt:])), int64(be.Uint64(batch[latestAt:]))
	b.count, b.records = int(int32(be.Uint32(batch[countAt:]))), batch[recordsAt:]
	switch {
	case be.Uint32(batch[crcAt:]) != crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli)):
		b.malformed = ErrChecksum
	case b.codec > Zstd:
		b.malformed = ErrUnsupported
	case b.count < 0 || int64(b.count) > b.Last-b.First+1:
		b.malformed = ErrMalformed
	}
	return b, rest, true
}
