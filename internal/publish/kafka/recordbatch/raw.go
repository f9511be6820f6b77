package recordbatch

import (
	"encoding/binary"
	"io"

	"github.com/segmentio/kafka-go/protocol"
)

// RawRecordSet returns an encoded batch in the form that kafka-go's RawProduceRequest takes: its
// size in four bytes, then the batch. It does not copy the batch, which must not change until the
// response arrives. Several requests can use the same set.
func RawRecordSet(batch []byte) protocol.RawRecordSet {
	r := &rawReader{batch: batch}
	binary.BigEndian.PutUint32(r.size[:], uint32(len(batch)))
	return protocol.RawRecordSet{Reader: r}
}

type rawReader struct {
	size  [4]byte
	batch []byte
	read  int // bytes that Read has returned
}

var _ io.WriterTo = (*rawReader)(nil)

// WriteTo writes the whole set on every call. io.Copy uses WriteTo, and so does kafka-go.
func (r *rawReader) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.size[:])
	if err != nil {
		return int64(n), err
	}
	m, err := w.Write(r.batch)
	return int64(n + m), err
}

func (r *rawReader) Read(p []byte) (int, error) {
	n := 0
	if r.read < len(r.size) {
		n = copy(p, r.size[r.read:])
	}
	if at := r.read + n - len(r.size); at >= 0 {
		n += copy(p[n:], r.batch[at:])
	}
	r.read += n
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
