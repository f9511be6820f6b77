package recordbatch

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func appendVarint(v int64) []byte { return binary.AppendVarint(nil, v) }

func TestEncodeRefuses(t *testing.T) {
	one := batchOf(Record{})
	for _, test := range []struct {
		name  string
		batch *Batch
		codec Compression
		p     Producer
		seq   int32
		ok    bool
	}{
		{"no producer", one, None, Producer{-1, -1}, -1, true},
		{"the first", one, None, Producer{0, 0}, 0, true},
		{"the last", one, None, Producer{math.MaxInt64, math.MaxInt16}, math.MaxInt32, true},
		{"empty", &Batch{}, None, Producer{-1, -1}, -1, false},
		{"no epoch", one, None, Producer{1, -1}, 0, false},
		{"no sequence", one, None, Producer{1, 0}, -1, false},
		{"no id", one, None, Producer{-1, 0}, 0, false},
		{"sequence without producer", one, None, Producer{-1, -1}, 0, false},
		{"too large", &Batch{records: one.records, size: math.MaxInt32}, None, Producer{-1, -1}, -1, false},
		{"unknown compression", one, Zstd + 1, Producer{-1, -1}, -1, false},
		{"negative compression", one, -1, Producer{-1, -1}, -1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.batch.Encode([]byte("before"), test.codec, test.p, test.seq)
			if (err == nil) != test.ok || !test.ok && string(got) != "before" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestEncodeAppends verifies that Encode keeps the contents of dst, and that these do not affect the
// batch.
func TestEncodeAppends(t *testing.T) {
	b, before := batchOf(oddRecords...), bytes.Repeat([]byte("b"), 1<<17) // more than the batch
	for _, codec := range allCodecs {
		want := mustEncode(t, b, codec, noProducer, NoSequence)
		for _, room := range []int{0, len(want) / 2, 1 << 20} {
			dst := append(make([]byte, 0, len(before)+room), before...)
			got, err := b.Encode(dst, codec, noProducer, NoSequence)
			if err != nil || !bytes.Equal(got[:len(before)], before) || !bytes.Equal(got[len(before):], want) {
				t.Errorf("%s, room for %d: the batch differs, or an error: %v", codec, room, err)
			}
		}
	}
}

// TestEncodeAtOnce encodes a batch in several goroutines, which share the batch and the pools of
// encoders. The race detector finds unsafe access.
func TestEncodeAtOnce(t *testing.T) {
	b := batchOf(oddRecords...)
	var group sync.WaitGroup
	for _, codec := range allCodecs {
		want := mustEncode(t, b, codec, noProducer, NoSequence)
		for range 4 {
			group.Go(func() {
				if got, err := b.Encode(nil, codec, noProducer, NoSequence); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: the batch differs, or an error: %v", codec, err)
				}
			})
		}
	}
	group.Wait()
}

// TestIncompressible verifies that a batch is not compressed if compression would make it larger.
func TestIncompressible(t *testing.T) {
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for _, test := range []struct {
		name  string
		value []byte
	}{{"noise", noise}, {"little", []byte("x")}} {
		b := batchOf(Record{Value: test.value})
		want := mustEncode(t, b, None, noProducer, NoSequence)
		for _, codec := range allCodecs {
			got, err := b.Encode([]byte("before"), codec, noProducer, NoSequence)
			if err != nil || !bytes.Equal(got[6:], want) {
				t.Errorf("%s: %s makes %d bytes of %d: %v", test.name, codec, len(got)-6, len(want), err)
			}
		}
	}
}

func TestNextSequence(t *testing.T) {
	for _, test := range []struct {
		base int32
		n    int
		want int32
	}{
		{0, 0, 0},
		{0, 1, 1},
		{41, 1, 42},
		{math.MaxInt32 - 1, 1, math.MaxInt32},
		{math.MaxInt32, 1, 0}, // this and the next case are from DefaultRecordBatchTest.testIncrementSequence of the Java client
		{math.MaxInt32 - 5, 10, 4},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
		{NoSequence, 5, NoSequence},
	} {
		if got := NextSequence(test.base, test.n); got != test.want {
			t.Errorf("%d after %d: got %d, want %d", test.n, test.base, got, test.want)
		}
	}
}

func TestCompressionNames(t *testing.T) {
	for i, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if c, err := ParseCompression(name); err != nil || c != Compression(i) || c.String() != name {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
	}
	for _, name := range []string{"", "GZIP", "brotli", "1"} {
		if c, err := ParseCompression(name); err == nil {
			t.Errorf("%q is taken for %v", name, c)
		}
	}
	if got := (Zstd + 1).String(); got != "Compression(5)" {
		t.Errorf("got %q", got)
	}
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte("\x02\x03key\x05value"), uint8(4), int64(4711), int16(3), int32(9))
	f.Add([]byte("\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00"), uint8(0), int64(0), int16(0), int32(0))
	f.Add(append([]byte("\xfe\x01k\xc8"), bytes.Repeat([]byte("ab"), 120)...), uint8(2), int64(-1), int16(0), int32(0))
	f.Add([]byte("\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x00\x00"), uint8(3), int64(1), int16(1), int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, data []byte, codec uint8, id int64, epoch int16, sequence int32) {
		records := recordsFrom(data)
		b := batchOf(records...)
		p, c := Producer{ID: id, Epoch: epoch}, Compression(codec%5)
		if id < 0 || epoch < 0 || sequence < 0 {
			p, sequence = noProducer, NoSequence
		}
		encoded, err := b.Encode(nil, c, p, sequence)
		if (err != nil) != (len(records) == 0) {
			t.Fatalf("%d records: %v", len(records), err)
		}
		if err != nil {
			return
		}
		if len(encoded) > b.Size() || c == None && len(encoded) != b.Size() {
			t.Errorf("%s: %d bytes, announced %d", c, len(encoded), b.Size())
		}
		want := plainOf(records)
		got, _ := readKafkaGo(t, encoded)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kafka-go (-want +got):\n%s", diff)
		}
		got, header := readFranz(t, encoded)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("franz-go (-want +got):\n%s", diff)
		}
		if header.ProducerID != p.ID || header.ProducerEpoch != p.Epoch || header.FirstSequence != sequence || header.NumRecords != int32(len(records)) {
			t.Errorf("header %+v", header)
		}
	})
}
