package recordbatch

import (
	"bytes"
	"io"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
)

// BenchmarkEncode encodes 1,000 records of 8 KB in one batch, with this package and with kafka-go.
// MB/s counts uncompressed bytes, and ratio is the compression ratio.
func BenchmarkEncode(b *testing.B) {
	records := someRecords(1000)
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			b.Run("recordbatch", func(b *testing.B) {
				var dst []byte
				size := batchOf(records...).Size()
				encode := func() {
					batch := &Batch{}
					for _, r := range records {
						batch.Append(r)
					}
					var err error
					if dst, err = batch.Encode(dst[:0], codec, Producer{ID: 1, Epoch: 1}, 0); err != nil {
						b.Fatal(err)
					}
				}
				encode() // dst is already allocated, as in a producer
				measure(b, size, encode, func() int { return len(dst) })
			})
			b.Run("kafka-go", func(b *testing.B) {
				size := batchOf(records...).Size()
				var dst bytes.Buffer
				encode := func() {
					dst.Reset()
					set := protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(codec), Records: &reader{records: records}}
					if _, err := set.WriteTo(&dst); err != nil {
						b.Fatal(err)
					}
				}
				encode()
				measure(b, size, encode, dst.Len)
			})
		})
	}
}

func measure(b *testing.B, size int, encode func(), encoded func() int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		encode()
	}
	b.ReportMetric(float64(size)/float64(encoded()), "ratio")
}

// reader passes records to kafka-go as kafka-go's Writer does.
type reader struct {
	records []Record
	record  protocol.Record
}

func (r *reader) ReadRecord() (*protocol.Record, error) {
	if len(r.records) == 0 {
		return nil, io.EOF
	}
	next := r.records[0]
	r.records = r.records[1:]
	r.record = protocol.Record{
		Time: next.Timestamp, Key: protocol.NewBytes(next.Key), Value: protocol.NewBytes(next.Value), Headers: next.Headers,
	}
	return &r.record, nil
}
