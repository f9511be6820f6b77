package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/s2"
)

// Body is a Kubernetes object as JSON, without a final newline. It omits metadata.managedFields and
// the last-applied annotation, and holds keyed hashes in place of a Secret's values. Caches keep it
// compressed. The zero value holds no object.
type Body struct {
	bytes  []byte
	packed *codec // nil if bytes are the JSON itself
}

// JSON returns an uncompressed body. It takes ownership of b, which is not nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None reports whether b holds no object.
func (b Body) None() bool { return b.bytes == nil }

// Size returns the number of bytes in memory.
func (b Body) Size() int { return len(b.bytes) }

// String returns the size only, to keep the content out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON returns the text of the object, or nil if b holds none. The text is read-only, because it
// may be the body's own memory.
func (b Body) JSON() ([]byte, error) { return b.into(nil) }

// into is like JSON, but unpacks into the given memory if that is large enough.
func (b Body) into(memory []byte) ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.unpack(memory, b.bytes)
}

// Packer compresses the objects of one resource for a cache. It builds a dictionary from some of
// them. Objects of one type have most of their text in common, so a dictionary halves their memory
// (docs/sizing.md). Several goroutines can use a Packer at once.
//
// A nil Packer does not compress.
type Packer struct {
	mu      sync.Mutex
	codec   *codec
	seen    int // number of objects
	learned int // number of dictionaries made
	samples [][]byte
}

// dictionaries lists the object counts at which a Packer makes a new dictionary. Lists are sorted
// by name, so the first objects are too similar to each other for a good dictionary. Each
// dictionary takes about 150 KB, and stays in memory as long as any object that was compressed with
// it.
var dictionaries = [...]int{128, 2048, 32768}

// samples is the number of sample objects in a dictionary. sampleSize is the maximum number of
// bytes from each of them.
const (
	samples    = 8
	sampleSize = 8 << 10
)

// NewPacker returns a Packer for one resource.
func NewPacker() *Packer { return &Packer{codec: noDictionary} }

// Pack compresses the text of an object. It does not retain text.
func (p *Packer) Pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	return Body{bytes: c.pack(text), packed: c}
}

// learn counts an object and returns the codec for it. It makes a new dictionary first if one is
// due.
func (p *Packer) learn(text []byte) *codec {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learned == len(dictionaries) {
		return p.codec
	}
	next := dictionaries[p.learned]
	if p.seen%(next/samples) == 0 {
		p.samples = append(p.samples, append([]byte(nil), text[:min(len(text), sampleSize)]...))
	}
	if p.seen++; p.seen >= next {
		p.codec, p.samples = newCodec(p.samples[max(0, len(p.samples)-samples):]), nil
		p.learned++
	}
	return p.codec
}

// codec compresses similar texts in two steps. S2 with a dictionary removes the text that they have
// in common, and Huffman coding (huff0) with one shared table shortens the rest. Compared with zstd
// and a dictionary, the two steps take a third of the time and about an eighth more memory. S2
// alone takes a third more memory than both steps (docs/sizing.md).
//
// The output begins with a varint: twice the length of the S2 output, plus one if pack skipped the
// second step, for example because it would not shorten the text.
type codec struct {
	dictionary *s2.Dict // if nil, the second step is skipped too
	decoder    *huff0.Decoder
	encoders   sync.Pool // of *huff0.Scratch with the table
}

// noDictionary is the codec that a Packer uses until it has a dictionary.
var noDictionary = &codec{}

// newCodec returns a codec for texts similar to the samples.
func newCodec(samples [][]byte) *codec {
	dictionary := s2.MakeDict(bytes.Join(samples, nil), nil)
	if dictionary == nil { // the samples are too short
		return noDictionary
	}
	// The table needs the byte frequencies of S2 output. A sample would encode to almost nothing
	// with a dictionary that contains it, so each sample is encoded with a dictionary of the other
	// samples.
	var left []byte
	for n, text := range samples {
		others := s2.MakeDict(bytes.Join(append(append([][]byte(nil), samples[:n]...), samples[n+1:]...), nil), nil)
		if others != nil {
			left = append(left, others.Encode(nil, text)...)
		}
	}
	for b := range 256 {
		left = append(left, byte(b)) // the table needs every byte
	}
	table := &huff0.Scratch{Reuse: huff0.ReusePolicyNone}
	if _, _, err := huff0.Compress1X(left[max(0, len(left)-huff0.BlockSizeMax):], table); err != nil {
		return &codec{dictionary: dictionary} // the frequencies make no useful table
	}
	read, _, err := huff0.ReadTable(table.OutTable, nil)
	if err != nil {
		return &codec{dictionary: dictionary}
	}
	c := &codec{dictionary: dictionary, decoder: read.Decoder()}
	c.encoders.New = func() any {
		e := &huff0.Scratch{Reuse: huff0.ReusePolicyMust}
		e.TransferCTable(table)
		return e
	}
	return c
}

// buffers pools memory for the data between the two steps and for the data of events.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBuffer is the maximum capacity in bytes of a buffer that returns to the pool. The limit
// matters because an event can hold a buffer that is larger than its data until the bus
// acknowledges the event; see inMemory.
const maxPooledBuffer = 64 << 10

// giveBack returns a buffer to the pool, unless it is nil.
func giveBack(buffer *[]byte) {
	if buffer != nil && cap(*buffer) <= maxPooledBuffer {
		buffers.Put(buffer)
	}
}

func (c *codec) pack(text []byte) []byte {
	buffer := buffers.Get().(*[]byte)
	defer giveBack(buffer)
	var left []byte
	if c.dictionary == nil {
		left = s2.Encode((*buffer)[:cap(*buffer)], text)
	} else {
		left = c.dictionary.Encode((*buffer)[:cap(*buffer)], text)
	}
	*buffer = left
	if c.decoder != nil && len(left) <= huff0.BlockSizeMax {
		e := c.encoders.Get().(*huff0.Scratch)
		defer c.encoders.Put(e)
		if coded, _, err := huff0.Compress1X(left, e); err == nil {
			return packed(uint64(len(left))<<1, coded)
		}
	}
	return packed(uint64(len(left))<<1|1, left)
}

func packed(head uint64, rest []byte) []byte {
	var h [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(h[:], head)
	return append(append(make([]byte, 0, n+len(rest)), h[:n]...), rest...)
}

var errBroken = errors.New("cached object is corrupted")

// unpack returns the text that pack compressed. It decodes into memory if that is large enough.
func (c *codec) unpack(memory, b []byte) ([]byte, error) {
	head, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errBroken
	}
	left, size := b[n:], int(head>>1)
	if head&1 == 0 {
		if c.decoder == nil || size > huff0.BlockSizeMax {
			return nil, errBroken
		}
		buffer := buffers.Get().(*[]byte)
		defer giveBack(buffer)
		if cap(*buffer) < size {
			*buffer = make([]byte, size)
		}
		var err error
		if left, err = c.decoder.Decompress1X((*buffer)[:0:size], left); err != nil {
			return nil, errBroken
		}
	}
	if len(left) != size {
		return nil, errBroken
	}
	var text []byte
	var err error
	if c.dictionary == nil {
		text, err = s2.Decode(memory[:cap(memory)], left)
	} else {
		text, err = c.dictionary.Decode(memory[:cap(memory)], left)
	}
	if err != nil {
		return nil, errBroken
	}
	return text, nil
}
