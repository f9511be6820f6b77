package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	noProducer = Producer{ID: -1, Epoch: -1}
	allCodecs  = []Compression{None, Gzip, Snappy, LZ4, Zstd}
	someTime   = time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)
	oddRecords = []Record{ // everything that the format distinguishes
		{Key: []byte("k"), Value: []byte("v"), Timestamp: someTime},
		{Key: nil, Value: nil, Timestamp: someTime},
		{Key: []byte{}, Value: []byte{}, Timestamp: someTime.Add(time.Hour)},
		{Key: []byte("earlier"), Timestamp: someTime.Add(-24 * time.Hour), Headers: []Header{{}}},
		{Value: []byte("h"), Timestamp: someTime, Headers: []Header{
			{Key: "ce_id", Value: []byte("é 日本 🙂")}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no key")}, {Key: "ce_id", Value: []byte("again")},
		}},
		{Key: bytes.Repeat([]byte("long"), 40), Value: bytes.Repeat([]byte(`{"a":1},`), 10000), Timestamp: someTime},
	}
)

func batchOf(records ...Record) *Batch {
	b := &Batch{}
	for _, r := range records {
		b.Append(r)
	}
	return b
}

func mustEncode(t testing.TB, b *Batch, codec Compression, p Producer, baseSequence int32) []byte {
	t.Helper()
	encoded, err := b.Encode(nil, codec, p, baseSequence)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// plain is a record as text (see textOf), which is quick to compare.
type plain struct {
	Key, Value string
	Headers    []string
	Millis     int64
}

// textOf returns a text that distinguishes null from empty.
func textOf(b []byte) string {
	if b == nil {
		return "null"
	}
	return "=" + string(b)
}

func (p *plain) header(key string, value []byte) { p.Headers = append(p.Headers, key, textOf(value)) }

func plainOf(records []Record) []plain {
	var result []plain
	for _, r := range records {
		p := plain{Key: textOf(r.Key), Value: textOf(r.Value), Millis: max(r.Timestamp.UnixMilli(), -1)}
		for _, h := range r.Headers {
			p.header(h.Key, h.Value)
		}
		result = append(result, p)
	}
	return result
}

// readKafkaGo encodes the batch as a request of kafka-go, and decodes that with kafka-go's own
// reader, which verifies the checksum.
func readKafkaGo(t testing.TB, encoded []byte) ([]plain, *protocol.RecordBatch) {
	t.Helper()
	sent := append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)
	var set protocol.RecordSet
	if n, err := set.ReadFrom(bytes.NewReader(sent)); err != nil || int(n) != len(encoded)+4 {
		t.Fatalf("kafka-go read %d of %d bytes: %v", n, len(encoded)+4, err)
	}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		t.Fatalf("kafka-go read %T, not one batch", set.Records)
	}
	batch := stream.Records[0].(*protocol.RecordBatch)
	var result []plain
	for {
		r, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return result, batch
		}
		if err != nil {
			t.Fatal(err)
		}
		p := plain{Millis: r.Time.UnixMilli()}
		key, err1 := protocol.ReadAll(r.Key)
		value, err2 := protocol.ReadAll(r.Value)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		p.Key, p.Value = textOf(key), textOf(value)
		for _, h := range r.Headers {
			p.header(h.Key, h.Value)
		}
		result = append(result, p)
	}
}

// readFranz decodes a batch with franz-go, as if a broker had sent it.
func readFranz(t testing.TB, encoded []byte) ([]plain, kmsg.RecordBatch) {
	t.Helper()
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(encoded); err != nil {
		t.Fatal(err)
	}
	fetched := kmsg.NewFetchResponseTopicPartition()
	fetched.RecordBatches = encoded
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &fetched, kgo.DefaultDecompressor(), nil)
	if got.Err != nil || next != int64(len(got.Records)) {
		t.Fatalf("franz-go read %d records up to offset %d: %v", len(got.Records), next, got.Err)
	}
	var result []plain
	for i, r := range got.Records {
		p := plain{Key: textOf(r.Key), Value: textOf(r.Value), Millis: r.Timestamp.UnixMilli()}
		for _, h := range r.Headers {
			p.header(h.Key, h.Value)
		}
		if r.Offset != int64(i) {
			t.Fatalf("record %d has offset %d", i, r.Offset)
		}
		result = append(result, p)
	}
	return result, batch
}

// someRecords returns n records of about 8 KB that resemble events on the bus.
func someRecords(n int) []Record {
	var result []Record
	for i := range n {
		var value strings.Builder
		fmt.Fprintf(&value, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"default","uid":"%x"},"status":[`, i, i*2654435761)
		for j := 0; value.Len() < 8000; j++ {
			fmt.Fprintf(&value, `{"type":"Ready%d","status":"True","lastTransitionTime":"2026-03-04T05:%02d:%02dZ","message":"%x"},`, j, i%60, j%60, (i+j)*40503*(j+7))
		}
		value.WriteString("{}]}")
		var headers []Header
		for j := range 17 {
			headers = append(headers, Header{Key: fmt.Sprintf("ce_attribute%d", j), Value: fmt.Appendf(nil, "value %d of %d", j, i)})
		}
		result = append(result, Record{
			Key: fmt.Appendf(nil, "cluster/core/pods/default/web-%d", i), Value: []byte(value.String()),
			Headers: headers, Timestamp: someTime.Add(time.Duration(i) * time.Millisecond),
		})
	}
	return result
}

// recordsFrom converts a fuzzer's data to records.
func recordsFrom(data []byte) []Record {
	take := func(n int) []byte {
		n = min(n, len(data))
		taken := data[:n:n]
		data = data[n:]
		return taken
	}
	number := func() uint64 { return binary.LittleEndian.Uint64(append(take(8), make([]byte, 8)...)) }
	piece := func() []byte {
		size := append(take(1), 0)[0]
		if size == 255 {
			return nil
		}
		return append([]byte{}, take(int(size))...)
	}
	var records []Record
	for len(data) > 0 {
		kind := take(1)[0]
		r := Record{Key: piece(), Value: piece(), Timestamp: someTime.Add(time.Duration(kind) * time.Second)}
		switch kind % 4 {
		case 0:
			r.Timestamp = time.UnixMilli(int64(number()>>21) - 1000) // up to the year 2248, because franz-go counts nanoseconds
		case 1:
			r.Timestamp = time.Time{}
		case 2: // repetitive, so that compression makes it smaller
			r.Value = bytes.Repeat(r.Value, int(kind))
		}
		for range kind / 4 % 4 {
			r.Headers = append(r.Headers, Header{Key: string(piece()), Value: piece()})
		}
		records = append(records, r)
	}
	return records
}
