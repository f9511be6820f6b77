package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
)

// Producer identifies an idempotent producer to a broker (KIP-98).
type Producer struct {
	ID    int64
	Epoch int16
}

// NoSequence is the base sequence of a batch without a producer. The producer ID and epoch of that
// batch are -1.
const NoSequence = -1

// Offsets of the header fields that are written last.
const (
	lengthAt     = 8
	crcAt        = 17
	attributesAt = 21 // the checksum covers the batch from here on
	recordsAt    = Overhead
)

// Encode appends the encoded batch to dst, compressed with codec unless that would make it larger.
// With a producer, baseSequence is the sequence number of the first record in its partition.
// Without a producer, ID and Epoch are -1 and baseSequence is [NoSequence].
//
// Encode returns an error and dst unchanged if the batch is empty or larger than 2 GiB, if the
// codec is unknown, or if the producer or the sequence number is invalid.
func (b *Batch) Encode(dst []byte, codec Compression, p Producer, baseSequence int32) ([]byte, error) {
	switch {
	case len(b.records) == 0:
		return dst, errors.New("encode record batch: it has no records")
	case b.Size() > math.MaxInt32:
		return dst, fmt.Errorf("encode record batch: it has %d bytes, want at most %d", b.Size(), math.MaxInt32)
	case codec < None || codec > Zstd:
		return dst, fmt.Errorf("encode record batch: unknown compression %d", codec)
	}
	if err := p.check(baseSequence); err != nil {
		return dst, fmt.Errorf("encode record batch: %w", err)
	}

	start := len(dst)
	dst = b.appendHeader(dst, p, baseSequence)
	if codec == None {
		dst = b.appendRecords(slices.Grow(dst, b.size))
	} else {
		scratch := scratches.Get().(*[]byte)
		defer scratches.Put(scratch)
		*scratch = b.appendRecords(slices.Grow((*scratch)[:0], b.size))
		var err error
		if dst, err = codec.append(dst, *scratch); err != nil {
			return dst[:start], fmt.Errorf("encode record batch: compress with %s: %w", codec, err)
		}
		if len(dst)-start-recordsAt < b.size {
			binary.BigEndian.PutUint16(dst[start+attributesAt:], uint16(codec))
		} else {
			dst = append(dst[:start+recordsAt], *scratch...)
		}
	}
	finish(dst[start:])
	return dst, nil
}

// scratches holds buffers for uncompressed records.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// NextSequence returns the sequence number that follows n records starting at base. It wraps from
// 2^31-1 to 0, like DefaultRecordBatch.incrementSequence in the Java client. If base is [NoSequence],
// NextSequence returns NoSequence.
func NextSequence(base int32, n int) int32 {
	if base < 0 {
		return NoSequence
	}
	return int32((int64(base) + int64(n)) & math.MaxInt32)
}

func (p Producer) check(baseSequence int32) error {
	none := p.ID == -1 && p.Epoch == -1 && baseSequence == NoSequence
	if !none && (p.ID < 0 || p.Epoch < 0 || baseSequence < 0) {
		return fmt.Errorf("producer ID %d, epoch %d, and sequence number %d: all three must be -1, or none negative", p.ID, p.Epoch, baseSequence)
	}
	return nil
}

func (p Producer) append(b []byte, baseSequence int32) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.ID))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Epoch))
	return binary.BigEndian.AppendUint32(b, uint32(baseSequence))
}

// appendHeader appends the header. The length, checksum, and compression are set later.
func (b *Batch) appendHeader(dst []byte, p Producer, baseSequence int32) []byte {
	be := binary.BigEndian
	dst = slices.Grow(dst, Overhead)
	dst = be.AppendUint64(dst, 0)              // base offset: set by the broker
	dst = be.AppendUint32(dst, 0)              // length of the bytes after this field
	dst = be.AppendUint32(dst, math.MaxUint32) // partition leader epoch: clients write -1
	dst = append(dst, 2)                       // magic
	dst = be.AppendUint32(dst, 0)              // checksum
	dst = be.AppendUint16(dst, 0)              // attributes
	dst = be.AppendUint32(dst, uint32(len(b.records)-1))
	dst = be.AppendUint64(dst, uint64(b.first))
	dst = be.AppendUint64(dst, uint64(b.max))
	dst = p.append(dst, baseSequence)
	return be.AppendUint32(dst, uint32(len(b.records)))
}

func (b *Batch) appendRecords(dst []byte) []byte {
	for i := range b.records {
		r := &b.records[i]
		delta := r.timestamp() - b.first
		dst = binary.AppendVarint(dst, int64(bodySize(r, delta, i)))
		dst = append(dst, 0) // attributes: none are defined
		dst = binary.AppendVarint(dst, delta)
		dst = binary.AppendVarint(dst, int64(i))
		dst = appendBytes(dst, r.Key)
		dst = appendBytes(dst, r.Value)
		dst = binary.AppendVarint(dst, int64(len(r.Headers)))
		for j := range r.Headers {
			h := &r.Headers[j]
			dst = binary.AppendVarint(dst, int64(len(h.Key)))
			dst = append(dst, h.Key...)
			dst = appendBytes(dst, h.Value)
		}
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// finish sets the length of a complete batch, and then its CRC-32C checksum.
func finish(batch []byte) {
	binary.BigEndian.PutUint32(batch[lengthAt:], uint32(len(batch)-lengthAt-4))
	sum := crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(batch[crcAt:], sum)
}
