package recordbatch

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
)

// TestRead verifies that two independent readers return the original records, with every
// compression.
func TestRead(t *testing.T) {
	for _, codec := range allCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			encoded := mustEncode(t, batchOf(oddRecords...), codec, Producer{ID: 4711, Epoch: 12}, 1234)
			got, batch := readKafkaGo(t, encoded)
			if diff := cmp.Diff(plainOf(oddRecords), got); diff != "" {
				t.Errorf("kafka-go (-want +got):\n%s", diff)
			}
			batch.Records = nil
			want := &protocol.RecordBatch{
				Attributes: protocol.Attributes(codec), PartitionLeaderEpoch: -1, ProducerID: 4711, ProducerEpoch: 12, BaseSequence: 1234,
			}
			if diff := cmp.Diff(want, batch); diff != "" {
				t.Errorf("kafka-go, header (-want +got):\n%s", diff)
			}
			got, _ = readFranz(t, encoded)
			if diff := cmp.Diff(plainOf(oddRecords), got); diff != "" {
				t.Errorf("franz-go (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNilAndEmpty verifies that null and empty are encoded differently, because a null value is a
// tombstone.
func TestNilAndEmpty(t *testing.T) {
	for _, test := range []struct {
		name   string
		record Record
		want   string // without length, attributes and deltas
	}{
		{"all nil", Record{}, "\x01\x01\x00"},
		{"empty key", Record{Key: []byte{}}, "\x00\x01\x00"},
		{"empty value", Record{Value: []byte{}}, "\x01\x00\x00"},
		{"both", Record{Key: []byte("a"), Value: []byte("bc")}, "\x02a\x04bc\x00"},
		{"no headers", Record{Headers: []Header{}}, "\x01\x01\x00"},
		{"header with null", Record{Headers: []Header{{Key: "h", Value: nil}}}, "\x01\x01\x02\x02h\x01"},
		{"header with empty", Record{Headers: []Header{{Key: "h", Value: []byte{}}}}, "\x01\x01\x02\x02h\x00"},
		{"header without key", Record{Headers: []Header{{Key: "", Value: []byte("v")}}}, "\x01\x01\x02\x00\x02v"},
	} {
		t.Run(test.name, func(t *testing.T) {
			encoded := mustEncode(t, batchOf(test.record), None, noProducer, NoSequence)
			body := encoded[Overhead:]
			if got := string(body[4:]); got != test.want || int(body[0])/2 != len(body)-1 {
				t.Errorf("got %q, want %q after length, attributes and deltas", body, test.want)
			}
		})
	}
}

func TestTimestamps(t *testing.T) {
	day := 24 * time.Hour
	for _, test := range []struct {
		name       string
		times      []time.Time
		first, max int64
	}{
		{"one", []time.Time{someTime}, 1772600767890, 1772600767890},
		{"rising", []time.Time{someTime, someTime.Add(day)}, 1772600767890, 1772687167890},
		{"falling", []time.Time{someTime, someTime.Add(-day)}, 1772600767890, 1772600767890},
		{"1970", []time.Time{time.UnixMilli(0)}, 0, 0},
		{"none", []time.Time{{}}, -1, -1},
		{"before 1970", []time.Time{time.UnixMilli(-1)}, -1, -1},
		{"none, then one", []time.Time{{}, someTime}, -1, 1772600767890},
		{"one, then none", []time.Time{someTime, {}}, 1772600767890, 1772600767890},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := &Batch{}
			for _, at := range test.times {
				b.Append(Record{Timestamp: at})
			}
			_, header := readFranz(t, mustEncode(t, b, None, noProducer, NoSequence))
			if header.FirstTimestamp != test.first || header.MaxTimestamp != test.max {
				t.Errorf("got first %d, max %d; want %d, %d", header.FirstTimestamp, header.MaxTimestamp, test.first, test.max)
			}
		})
	}
}

// TestSize verifies that the size computed before a record is appended equals the encoded size.
func TestSize(t *testing.T) {
	b := &Batch{}
	if b.Size() != Overhead {
		t.Errorf("an empty batch takes %d bytes", b.Size())
	}
	for i, r := range append(someRecords(70), oddRecords...) { // enough records for offset deltas of one and two bytes
		with := b.SizeWith(r)
		b.Append(r)
		if got := len(mustEncode(t, b, None, noProducer, NoSequence)); b.Size() != got || with != got {
			t.Errorf("record %d: said %d before and %d after, is %d", i, with, b.Size(), got)
		}
		if i%10 > 0 {
			continue
		}
		for _, codec := range allCodecs[1:] {
			if got := len(mustEncode(t, b, codec, noProducer, NoSequence)); got > b.Size() {
				t.Errorf("record %d: %s makes %d bytes of %d", i, codec, got, b.Size())
			}
		}
	}
}

func TestVarintSize(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, -64, 64, -65, 8191, 8192, -8192, -8193, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		if got, want := varintSize(v), len(appendVarint(v)); got != want {
			t.Errorf("%d: got %d, want %d", v, got, want)
		}
	}
}
