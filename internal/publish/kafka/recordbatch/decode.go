package recordbatch

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// The reasons why a batch cannot be read. A reader skips such a batch.
var (
	// ErrTooLarge means that the batch or one of its records unpacks to more than [MaxUnpacked] or
	// [MaxRecord], or that a record has too many or too long headers.
	ErrTooLarge = errors.New("too large")
	// ErrMalformed means that the batch contradicts itself or can't be parsed.
	ErrMalformed = errors.New("malformed")
	// ErrUnsupported means that the batch is not in format v2, or its compression is unknown.
	ErrUnsupported = errors.New("unsupported format")
	// ErrChecksum means that the checksum does not match: the bytes are not those that the producer
	// sent.
	ErrChecksum = errors.New("wrong checksum")
)

// Encoded is one batch of a fetch response.
type Encoded struct {
	// First and Last are the first and last offsets of the batch. Compaction can remove any records
	// of the batch, including those at First and Last.
	First, Last int64
	// Control marks the batch as a transaction marker, which holds no records for consumers.
	Control bool

	codec     Compression
	appended  bool // when the broker appended the batch, it set the time of all records to latest
	earliest  int64
	latest    int64
	count     int
	records   []byte
	malformed error // why the batch cannot be read
}

// Offsets of the fields of a batch header, in addition to those in encode.go.
const (
	magicAt     = crcAt - 1
	lastDeltaAt = 23
	earliestAt  = 27
	latestAt    = 35
	countAt     = 57
)

// Bits of a batch's attributes.
const (
	compressionBits = 0x07
	appendTimeBit   = 0x08
	controlBit      = 0x20
)

// maxOffset is the highest accepted offset. Additions to an offset below it cannot overflow.
const maxOffset = math.MaxInt64 >> 1

// Cut returns the first batch of the records in a fetch response, and the rest. ok is false if the
// records contain no whole batch, because brokers cut off a response at the requested size. The
// batch shares the bytes of the records.
//
// If the batch cannot be read, it has its offsets as far as they are known, and [Encoded.Open] returns
// the reason.
func Cut(records []byte) (b Encoded, rest []byte, ok bool) {
	if len(records) <= magicAt {
		return Encoded{}, nil, false
	}
	be := binary.BigEndian
	first := int64(be.Uint64(records))
	size := int64(int32(be.Uint32(records[lengthAt:]))) + lengthAt + 4 // the field counts the bytes after itself
	switch {
	case first < 0 || first > maxOffset:
		return Encoded{malformed: ErrMalformed}, nil, true
	case size <= magicAt: // the start of the rest is unknown
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
