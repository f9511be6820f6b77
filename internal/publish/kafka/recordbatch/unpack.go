package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// unpacker reads and decompresses the records of a batch, up to MaxUnpacked bytes.
type unpacker struct {
	from io.Reader
	left int // bytes that can still follow
	pool *sync.Pool
}

var _ io.Reader = (*unpacker)(nil)

// unpackerOf returns an unpacker for packed records. It allocates at most about largest bytes, and a
// few MiB for the tables of the compression.
func unpackerOf(codec Compression, packed []byte, largest int) (*unpacker, error) {
	// zstd.Decoder unpacks a bytes.Buffer all at once, but not a bytes.Reader.
	source := bytes.NewReader(packed)
	u := &unpacker{from: source, left: MaxUnpacked}
	switch codec {
	case Gzip:
		u.pool = &gunzips
	case LZ4:
		u.pool = &unlz4s
	case Zstd:
		u.pool = &unzstds
	case Snappy:
		u.from = newSnappyReader(packed, largest)
		return u, nil
	case None:
		return u, nil
	default:
		return nil, ErrUnsupported
	}
	from := u.pool.Get().(resetter)
	if err := from.Reset(source); err != nil {
		u.pool.Put(from)
		return nil, unpackError(err)
	}
	u.from = from
	return u, nil
}

// Read reads decompressed bytes. Its error is io.EOF, or one of the reasons why a batch cannot be
// read.
func (u *unpacker) Read(p []byte) (int, error) {
	if u.left == 0 {
		if _, err := io.ReadFull(u.from, make([]byte, 1)); errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		return 0, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrTooLarge, MaxUnpacked)
	}
	n, err := u.from.Read(p[:min(len(p), u.left)])
	u.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		err = unpackError(err)
	}
	return n, err
}

func (u *unpacker) close() {
	if u.pool != nil {
		u.pool.Put(u.from)
		u.pool = nil
	}
}

func unpackError(err error) error {
	switch {
	case errors.Is(err, ErrLarge), errors.Is(err, ErrTooLarge), errors.Is(err, ErrMalformed):
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // callers take io.EOF as the end of the batch
	}
	return fmt.Errorf("%w: decompress: %w", ErrMalformed, err)
}

// resetter is a decoder that can be reused.
type resetter interface {
	io.Reader
	Reset(source io.Reader) error
}

// Pools of decoders, which are expensive to create.
var (
	gunzips = sync.Pool{New: func() any { return new(gzip.Reader) }}
	unlz4s  = sync.Pool{New: func() any { return lz4Reader{lz4.NewReader(nil)} }}
	// RFC 8878 (3.1.1.1.2) recommends that decoders support windows of at least 8 MiB. The default
	// of Java producers is 2 MiB. With a concurrency of 1, a decoder runs no goroutine, so
	// the pool can drop it without closing it.
	unzstds = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(MaxUnpacked))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	}}
)

type lz4Reader struct{ *lz4.Reader }

func (r lz4Reader) Reset(source io.Reader) error {
	r.Reader.Reset(source)
	return nil
}

// maxSnappyRatio exceeds the compression ratio of any snappy block: a copy element produces at most
// 64 bytes and takes at least 3. The decoder also accepts S2, whose ratio has no bound.
const maxSnappyRatio = 32

// snappyReader reads the framing of snappy-java, or a single block.
type snappyReader struct {
	packed  []byte
	framed  bool
	largest int
	block   []byte // the unpacked block
	read    int    // bytes of block that were read
}

func newSnappyReader(packed []byte, largest int) *snappyReader {
	r := &snappyReader{packed: packed, largest: largest}
	if r.framed = len(packed) >= len(xerial) && bytes.HasPrefix(packed, xerial[:8]); r.framed {
		r.packed = packed[len(xerial):]
	}
	return r
}

func (r *snappyReader) Read(p []byte) (int, error) {
	for r.read == len(r.block) {
		if len(r.packed) == 0 {
			return 0, io.EOF
		}
		if err := r.unpack(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.block[r.read:])
	r.read += n
	return n, nil
}

// unpack unpacks the next block.
func (r *snappyReader) unpack() error {
	block := r.packed
	if r.framed {
		if len(block) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := int64(binary.BigEndian.Uint32(block))
		if size > int64(len(block)-4) {
			return io.ErrUnexpectedEOF
		}
		block = block[4 : 4+size]
		r.packed = r.packed[4+size:]
	} else {
		r.packed = nil
	}
	n, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return err
	case n > maxSnappyRatio*(len(block)+1):
		return fmt.Errorf("%w: a block of %d bytes cannot decompress to %d bytes", ErrMalformed, len(block), n)
	case n > MaxRecord:
		return fmt.Errorf("%w: a block decompresses to %d bytes, want at most %d", ErrTooLarge, n, MaxRecord)
	case n > r.largest:
		return ErrLarge
	}
	r.read = 0
	r.block, err = snappy.Decode(slices.Grow(r.block[:0], n)[:n], block)
	return err
}
