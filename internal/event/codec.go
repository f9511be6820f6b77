package event

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/s2"
)

// codec packs texts that are alike: S2 with a dictionary leaves out what they have in
// common, and then each byte of what is left is written in as many bits as it is frequent
// (huff0), with one table for all. Together they take a third of the time of zstd with a
// dictionary, and about an eighth more memory; S2 alone takes a third more memory
// (docs/sizing.md).
//
// What is packed begins with the length of what S2 gave, as a varint, twice; and one more
// where the second step was left out, since nothing would have been won.
type codec struct {
	dictionary *s2.Dict // nil for none, and then there is no second step either
	decoder    *huff0.Decoder
	encoders   sync.Pool // of *huff0.Scratch, with the table
}

// noDictionary packs what is not known to be alike.
var noDictionary = &codec{}

// newCodec makes a codec for texts like these.
func newCodec(like [][]byte) *codec {
	dictionary := s2.MakeDict(bytes.Join(like, nil), nil)
	if dictionary == nil { // less than its least size: nothing is worth it
		return noDictionary
	}
	// The frequencies are those of what the dictionary leaves of texts. Those it was made of
	// would leave nothing, so each goes without its own.
	var left []byte
	for n, text := range like {
		others := s2.MakeDict(bytes.Join(append(append([][]byte(nil), like[:n]...), like[n+1:]...), nil), nil)
		if others != nil {
			left = append(left, others.Encode(nil, text)...)
		}
	}
	for b := range 256 {
		left = append(left, byte(b)) // the table is to have every byte
	}
	table := &huff0.Scratch{Reuse: huff0.ReusePolicyNone}
	if _, _, err := huff0.Compress1X(left[max(0, len(left)-huff0.BlockSizeMax):], table); err != nil {
		return &codec{dictionary: dictionary} // without frequencies to make use of
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

// buffers are for what is between the two steps.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// largestBuffer stays for the next. One may be with an event for as long as the bus needs,
// and hold a smaller object then: see data.
const largestBuffer = 64 << 10

// giveBack takes nil for none.
func giveBack(buffer *[]byte) {
	if buffer != nil && cap(*buffer) <= largestBuffer {
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

var errBroken = errors.New("the cached object cannot be unpacked")

// unpack uses the memory, if it is enough.
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
