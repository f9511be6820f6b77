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

// Body is a Kubernetes object as JSON, without a final newline. It has no metadata.managedFields
// and no last-applied annotation, and of the values of a Secret it has only keyed hashes. The
// cache keeps it compressed. The zero value is no object.
type Body struct {
	bytes  []byte
	packed *codec // nil if bytes are the JSON itself
}

// JSON returns an uncompressed body. It takes ownership of b, which is not nil.
func JSON(b []byte) Body { return Body{bytes: b} }

// None reports whether there is no object.
func (b Body) None() bool { return b.bytes == nil }

// Size returns the number of bytes in memory.
func (b Body) Size() int { return len(b.bytes) }

// String returns the size only, to keep the content out of logs.
func (b Body) String() string { return fmt.Sprintf("%d bytes", len(b.bytes)) }

// JSON returns the text, or nil if there is none. The text is read-only, because it may be
// the body's own memory.
func (b Body) JSON() ([]byte, error) { return b.into(nil) }

// into is JSON, but uses the given memory if it is large enough.
func (b Body) into(memory []byte) ([]byte, error) {
	if b.packed == nil {
		return b.bytes, nil
	}
	return b.packed.unpack(memory, b.bytes)
}

// Packer compresses the objects of one resource, for a cache. It makes a dictionary from
// some of them. Objects of one type have most of their text in common, so they take half
// the memory with a dictionary (docs/sizing.md). Several goroutines can use it at once.
//
// A nil Packer does not compress.
type Packer struct {
	mu      sync.Mutex
	codec   *codec
	seen    int // number of objects
	learned int // number of dictionaries made
	samples [][]byte
}

// dictionaries holds the numbers of objects after which a new dictionary is made. Lists are
// sorted by name, so the first objects are too similar for a good one. Each dictionary takes
// about 150 KB, and stays in memory as long as an object that was compressed with it.
var dictionaries = [...]int{128, 2048, 32768}

// A dictionary is made from this number of sample objects, up to sampleSize bytes of each.
const (
	samples    = 8
	sampleSize = 8 << 10
)

// NewPacker returns a Packer for one resource.
func NewPacker() *Packer { return &Packer{codec: noDictionary} }

// Pack compresses the text of an object. It copies what it keeps.
func (p *Packer) Pack(text []byte) Body {
	if p == nil {
		return JSON(append(make([]byte, 0, len(text)), text...))
	}
	c := p.learn(text)
	return Body{bytes: c.pack(text), packed: c}
}

// learn returns the codec for an object, and may make a new dictionary.
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

// codec compresses similar texts in two steps: S2 with a dictionary removes the text that they
// have in common, and Huffman coding (huff0) with one shared table shortens the rest. Together
// they take a third of the time of zstd with a dictionary, and about an eighth more memory. S2
// alone takes a third more memory (docs/sizing.md).
//
// The output begins with a varint: twice the length of the S2 output, plus one if the
// second step was skipped because it would not shorten the text.
type codec struct {
	dictionary *s2.Dict // if nil, there is no second step either
	decoder    *huff0.Decoder
	encoders   sync.Pool // of *huff0.Scratch with the table
}

// noDictionary is the codec before the first dictionary.
var noDictionary = &codec{}

// newCodec returns a codec for texts similar to the samples.
func newCodec(samples [][]byte) *codec {
	dictionary := s2.MakeDict(bytes.Join(samples, nil), nil)
	if dictionary == nil { // the samples are too short
		return noDictionary
	}
	// The table needs the byte frequencies of S2 output. With its own dictionary, a sample would
	// encode to almost nothing, so each sample is encoded with a dictionary of the others.
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

// buffers holds memory for the data between the two steps.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBuffer is the capacity in bytes of the largest buffer that returns to the pool.
// An event can hold a buffer until the bus acknowledges it, even if its object is smaller;
// see data.go.
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

// unpack uses memory if it is large enough.
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
