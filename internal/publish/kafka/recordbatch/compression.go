package recordbatch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is how the records of a batch are compressed; its number is that of the
// format. The levels are those of kafka-go's Writer and of franz-go.
type Compression int8

// The compressions of format v2.
const (
	None   Compression = 0
	Gzip   Compression = 1
	Snappy Compression = 2
	LZ4    Compression = 3
	Zstd   Compression = 4
)

// compressions are the names, in the order of their numbers, as in the setting
// compression.type of Kafka's own clients.
var compressions = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Compression) String() string {
	if c < None || c > Zstd {
		return fmt.Sprintf("Compression(%d)", int8(c))
	}
	return compressions[c]
}

// ParseCompression is the inverse of String: none, gzip, snappy, lz4 or zstd.
func ParseCompression(name string) (Compression, error) {
	i := slices.Index(compressions[:], name)
	if i < 0 {
		return None, fmt.Errorf("compression is %q; it must be none, gzip, snappy, lz4 or zstd", name)
	}
	return Compression(i), nil
}

// append appends src to dst, compressed.
func (c Compression) append(dst, src []byte) ([]byte, error) {
	switch c {
	case Gzip:
		return appendWith(&gzips, dst, src)
	case Snappy:
		return appendSnappy(dst, src), nil
	case LZ4:
		return appendWith(&lz4s, dst, src)
	case Zstd:
		e := zstds.Get().(*zstd.Encoder)
		defer zstds.Put(e)
		return e.EncodeAll(src, dst), nil
	}
	return append(dst, src...), nil
}

// Pools of encoders, which are costly to make.
var (
	gzips = sync.Pool{New: func() any { return &stream{w: gzip.NewWriter(nil)} }}

	// Its defaults are independent blocks, which is all that Java consumers read, of up
	// to 4 MiB.
	lz4s = sync.Pool{New: func() any { return &stream{w: lz4.NewWriter(nil)} }}

	// The window is that of franz-go: less memory for an encoder, and on JSON no worse
	// (measured: up to 3% smaller or 2% larger). The fastest level gives as little as the
	// default one on batches of pods (9.67 and 9.65 times smaller) in two thirds of the time,
	// with a sixth of the tables. No goroutine runs in an encoder that is only used for
	// EncodeAll, so the pool may drop it without closing it.
	zstds = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(64<<10), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	}}
)
