package recordbatch

import (
	"encoding/binary"
	"io"

	"github.com/segmentio/kafka-go/protocol"
)

// RawRecordSet is an encoded batch in the form of kafka-go's RawProduceRequest, that
// is after its size in four bytes. Nothing is copied: the batch must not change until
// the request is answered. The request may be made again with the same set.
func RawRecordSet(batch []byte) protocol.RawRecordSet {
	r := &rawReader{batch: batch}
	binary.BigEndian.PutUint32(r.size[:], uint32(len(batch)))
	return protocol.RawRecordSet{Reader: r}
}

type rawReader struct {
	size  [4]byte
	batch []byte
	read  int // by Read
}

var _ io.WriterTo = (*rawReader)(nil)

// WriteTo writes all of it, however often it is called. It is what io.Copy uses, and so
// kafka-go.
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
