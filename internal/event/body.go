package event

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/event/codec"
)

// Body is a Kubernetes object as JSON, without a final newline. It omits metadata.managedFields and
// the last-applied annotation, and holds keyed hashes in place of a Secret's values. Caches keep it
// compressed. The zero value holds no object.
type Body struct {
	bytes  []byte
	packed *codec.Codec // nil if bytes are the JSON itself
}

// JSON returns an uncompressed body. It takes ownership of b. b must not be nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None reports whether b holds no object.
func (b Body) None() bool { return b.bytes == nil }

// Size returns the number of bytes in memory.
func (b Body) Size() int { return len(b.bytes) }

// String returns the size only, to keep the content out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON returns the text of the object, or nil if b holds none. The text is read-only, because it
// might be the body's own memory.
func (b Body) JSON() ([]byte, error) { return b.into(nil) }

// into is like JSON, but unpacks into the given memory if the memory is large enough.
func (b Body) into(memory []byte) ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.Unpack(memory, b.bytes)
}

// Packer compresses the objects of one resource for a cache. It builds a dictionary from some of
// them. Objects of one type have most of their text in common, so a dictionary halves their memory
// (docs/sizing.md). A Packer is safe for concurrent use.
//
// A nil Packer does not compress.
type Packer struct {
	seen  atomic.Int64 // number of objects
	codec atomic.Pointer[codec.Codec]

	mu      sync.Mutex
	samples [][]byte
}

// dictionaries lists the object counts at which a Packer makes a new dictionary. Lists are sorted
// by name, so the first objects are too similar to each other for a good dictionary. Each
// dictionary takes about 150 KB, and stays in memory until no object compressed with it is left.
var dictionaries = [...]int64{128, 2048, 32768}

// samples is the number of sample objects for a dictionary. sampleSize limits the bytes that the
// dictionary takes from each sample.
const (
	samples    = 8
	sampleSize = 8 << 10
)

// NewPacker returns a Packer for one resource.
func NewPacker() *Packer {
	p := &Packer{}
	p.codec.Store(codec.Plain)
	return p
}

// Pack compresses the text of an object. It does not retain text.
func (p *Packer) Pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	return Body{bytes: c.Pack(text), packed: c}
}

// learn counts an object and returns the codec for it. It makes a new dictionary first if one is
// due.
func (p *Packer) learn(text []byte) *codec.Codec {
	seen := p.seen.Add(1)
	for _, next := range dictionaries {
		if seen > next {
			continue
		}
		if (seen-1)%(next/samples) == 0 {
			p.keep(bytes.Clone(text[:min(len(text), sampleSize)]))
		}
		if seen == next {
			p.codec.Store(codec.New(p.take()))
		}
		break
	}
	return p.codec.Load()
}

func (p *Packer) keep(sample []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, sample)
}

// take removes all samples and returns the newest ones, at most as many as one dictionary uses.
func (p *Packer) take() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.samples
	p.samples = nil
	return all[max(0, len(all)-samples):]
}
