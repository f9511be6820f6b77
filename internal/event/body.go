package event

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Body is a Kubernetes object as JSON, without a final newline. It holds neither
// metadata.managedFields nor the last-applied annotation, and of a Secret only keyed
// hashes of its values. In a cache it is kept compressed. The zero value is no object.
type Body struct {
	bytes  []byte
	packed *codec // nil where bytes are the JSON itself
}

// JSON is the body that is not compressed. It takes over b, which is not nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None tells whether there is no object.
func (b Body) None() bool { return b.bytes == nil }

// Size is how many bytes are kept.
func (b Body) Size() int { return len(b.bytes) }

// String keeps what is in it out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON gives the text, nil for none. It is read-only: it may be the body's own.
func (b Body) JSON() ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.decoder().DecodeAll(b.bytes, nil)
}

// Packer compresses the objects of one resource, for a cache. From the first of many it
// makes a dictionary: objects of one type have most of their text in common, and with it
// they take half the memory (docs/sizing.md). It may be used by several goroutines at once.
//
// A nil Packer leaves everything as it is.
type Packer struct {
	mu      sync.Mutex
	codec   *codec
	seen    int
	samples []byte // of the dictionary to come, nil once it is there
}

// A dictionary is of some objects, with some distance between them, and made when there
// are so many that it pays: an encoder with a dictionary takes 0.8 MB.
const (
	objectsToLearn = 512
	betweenSamples = 64
	maxDictionary  = 32 << 10
)

// NewPacker makes a Packer for one resource.
func NewPacker() *Packer { return &Packer{codec: shared} }

// pack copies what it keeps of an object's text.
func (p *Packer) pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = c.encoder().EncodeAll(text, (*buffer)[:0])
	return Body{bytes: append(make([]byte, 0, len(*buffer)), *buffer...), packed: c}
}

// learn gives the codec to use for an object.
func (p *Packer) learn(text []byte) *codec {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.codec != shared {
		return p.codec
	}
	if p.seen%betweenSamples == 0 {
		p.samples = append(p.samples, text[:min(len(text), maxDictionary-len(p.samples))]...)
	}
	if p.seen++; p.seen == objectsToLearn {
		p.codec, p.samples = newCodec(p.samples), nil
	}
	return p.codec
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// codec is an encoder and a decoder for one dictionary.
type codec struct {
	encoder func() *zstd.Encoder
	decoder func() *zstd.Decoder
}

// shared is what has no dictionary.
var shared = newCodec(nil)

// dictionaryID is any but 0, which would stand for none.
const dictionaryID = 1

// newCodec makes a codec, whose memory is taken when it is used. An encoder with a
// dictionary takes one object at a time, as a watch brings them.
func newCodec(dictionary []byte) *codec {
	const window = 64 << 10 // 16 KB objects and a dictionary are well within it
	encoding := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true),
	}
	decoding := []zstd.DOption{zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(min(4, runtime.GOMAXPROCS(0)))}
	if len(dictionary) > 0 {
		encoding = append(encoding, zstd.WithEncoderDictRaw(dictionaryID, dictionary), zstd.WithEncoderConcurrency(1))
		decoding = append(decoding, zstd.WithDecoderDictRaw(dictionaryID, dictionary))
	} else {
		encoding = append(encoding, zstd.WithEncoderConcurrency(min(4, runtime.GOMAXPROCS(0))))
	}
	return &codec{
		encoder: sync.OnceValue(func() *zstd.Encoder {
			e, err := zstd.NewWriter(nil, encoding...)
			if err != nil {
				panic(err) // of options that are constants
			}
			return e
		}),
		decoder: sync.OnceValue(func() *zstd.Decoder {
			d, err := zstd.NewReader(nil, decoding...)
			if err != nil {
				panic(err)
			}
			return d
		}),
	}
}
