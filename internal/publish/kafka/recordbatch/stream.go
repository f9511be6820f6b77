package recordbatch

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/snappy"
)

// stream lets an encoder that writes to an io.Writer append to dst.
type stream struct {
	w interface {
		io.WriteCloser
		Reset(io.Writer)
	}
	dst []byte
}

func (s *stream) Write(p []byte) (int, error) {
	s.dst = append(s.dst, p...)
	return len(p), nil
}

func appendWith(pool *sync.Pool, dst, src []byte) ([]byte, error) {
	s := pool.Get().(*stream)
	defer pool.Put(s)
	s.dst = dst
	s.w.Reset(s)
	_, err := s.w.Write(src)
	if e := s.w.Close(); err == nil {
		err = e
	}
	dst, s.dst = s.dst, nil
	return dst, err
}

// xerial is the header of snappy-java's framing: its magic, the version, and the minimum version of
// a reader. Blocks follow, and each has its size in four bytes before it. Java producers write this
// framing, so all consumers read it.
var xerial = [...]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const xerialBlock = 32 << 10 // bytes before compression, as in Java

func appendSnappy(dst, src []byte) []byte {
	dst = append(dst, xerial[:]...)
	for block := range slices.Chunk(src, xerialBlock) {
		dst = slices.Grow(dst, 4+snappy.MaxEncodedLen(len(block)))
		at := len(dst) + 4
		n := len(snappy.Encode(dst[at:cap(dst)], block)) // in place: dst has room
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))[:at+n]
	}
	return dst
}
