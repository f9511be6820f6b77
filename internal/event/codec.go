package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/s2"
)

// codec compresses similar texts in two steps: S2 with a dictionary removes what they have
// in common, and Huffman coding (huff0) with one shared table shortens the rest. Together
// they take a third of the time of zstd with a dictionary, and about an eighth more memory.
// S2 alone takes a third more memory (docs/sizing.md).
//
// The output begins with a varint: twice the length of the S2 output, plus one if the
// second step was skipped because it would not shorten the text.
type codec struct {
	dictionary *s2.Dict // if nil, there is no second step either
	decoder    *huff0.Decoder
	encoders   sync.Pool // of *huff0.Scratch with the table
}

// noDictionary is the codec before samples are known.
var noDictionary = &codec{}

// newCodec returns a codec for texts similar to the samples.
func newCodec(samples [][]byte) *codec {
	dictionary := s2.MakeDict(bytes.Join(samples, nil), nil)
	if dictionary == nil { // the samples are too short
		return noDictionary
	}
	// The table needs the byte frequencies of S2 output. The dictionary would leave nothing
	// of its own samples, so each sample is encoded with a dictionary of the others.
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
		return &codec{dictionary: dictionary} // the frequencies are of no use
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

// giveBack returns a buffer to the pool. Nil is no buffer.
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
