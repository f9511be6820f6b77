package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// readAll reads the batches of a response and returns clones of the records.
func readAll(t testing.TB, response []byte, largest int) (records []Record, offsets []int64, err error) {
	t.Helper()
	for {
		b, rest, ok := Cut(response)
		if !ok {
			return records, offsets, nil
		}
		response = rest
		r, err := b.Open(largest)
		if err != nil {
			return records, offsets, err
		}
		for {
			record, offset, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				r.Close()
				return records, offsets, err
			}
			records, offsets = append(records, clone(record)), append(offsets, offset)
		}
		r.Close()
	}
}

func clone(r Record) Record {
	r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

func TestReader(t *testing.T) {
	for _, records := range [][]Record{oddRecords, someRecords(3), someRecords(700)} {
		for _, codec := range allCodecs {
			first := mustEncode(t, batchOf(records...), codec, noProducer, NoSequence)
			second := mustEncode(t, batchOf(records...), codec, Producer{ID: 7, Epoch: 1}, 3)
			binary.BigEndian.PutUint64(first, 5)
			binary.BigEndian.PutUint64(second, 5+uint64(len(records)))
			response := append(append(slices.Clone(first), second...), first[:len(first)-1]...) // the last batch is cut off
			got, offsets, err := readAll(t, response, 1<<20)
			if err != nil {
				t.Fatalf("%s: %v", codec, err)
			}
			if got, want := fmt.Sprint(plainOf(got)), fmt.Sprint(plainOf(append(slices.Clone(records), records...))); got != want {
				t.Errorf("%s:\n got %.300s\nwant %.300s", codec, got, want)
			}
			for i, offset := range offsets {
				if want := int64(5 + i); offset != want {
					t.Fatalf("%s: record %d has offset %d, want %d", codec, i, offset, want)
				}
			}
		}
	}
}

// TestReaderOfOtherCodecs verifies that the reader accepts a block of snappy without framing, and
// zstd with a larger window.
func TestReaderOfOtherCodecs(t *testing.T) {
	plain := mustEncode(t, batchOf(someRecords(100)...), None, noProducer, NoSequence)
	streamed := &bytes.Buffer{}
	w, err := zstd.NewWriter(streamed, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(plain[recordsAt:], 1000) {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	for codec, packed := range map[Compression][]byte{
		Snappy: snappy.Encode(nil, plain[recordsAt:]),
		Zstd:   streamed.Bytes(),
	} {
		batch := withRecords(plain, codec, packed)
		got, _, err := readAll(t, batch, 1<<20)
		if err != nil || len(got) != 100 {
			t.Errorf("%s: got %d records, %v", codec, len(got), err)
		}
	}
}

// withRecords returns a copy of a batch with other records.
func withRecords(batch []byte, codec Compression, records []byte) []byte {
	batch = append(slices.Clone(batch[:recordsAt]), records...)
	binary.BigEndian.PutUint16(batch[attributesAt:], uint16(codec))
	finish(batch)
	return batch
}

// bomb returns a batch with one record, whose value is n zeros.
func bomb(t testing.TB, codec Compression, n int) []byte {
	t.Helper()
	return mustEncode(t, batchOf(Record{Key: []byte("k"), Value: make([]byte, n)}), codec, noProducer, NoSequence)
}

// TestBombs verifies that a batch that unpacks to too many bytes is rejected, and costs little
// memory.
func TestBombs(t *testing.T) {
	bombs := map[string][]byte{}
	for _, codec := range allCodecs[1:] {
		bombs["record/"+codec.String()] = bomb(t, codec, MaxRecord+1)
	}
	large := Record{Value: make([]byte, MaxRecord-100)}
	bombs["batch"] = mustEncode(t, batchOf(Record{Key: []byte("k")}, large, large, Record{Value: make([]byte, 1000)}), Zstd, noProducer, NoSequence)
	for name, batch := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := readAll(t, batch, 1<<20)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrLarge) {
				t.Errorf("got %v", err)
			}
			// The tables of lz4 and the window of zstd use most of the memory.
			if got := after.TotalAlloc - before.TotalAlloc; got > 40<<20 {
				t.Errorf("allocated %d MiB", got>>20)
			}
		})
	}
	if got, _, err := readAll(t, bombs["batch"], MaxRecord); len(got) == 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %d records, %v of a batch over the limit", len(got), err)
	}
}

// TestLargestRecord verifies that the largest event and the largest batch that the settings allow
// can be read.
func TestLargestRecord(t *testing.T) {
	for _, codec := range []Compression{None, Snappy, Zstd} {
		batch := mustEncode(t, batchOf(Record{Key: []byte("k"), Value: make([]byte, MaxRecord-100)}, Record{Value: make([]byte, 36<<20)}), codec, noProducer, NoSequence)
		if _, _, err := readAll(t, batch, 1<<20); !errors.Is(err, ErrLarge) {
			t.Errorf("%s: got %v, want %v", codec, err, ErrLarge)
		}
		b, _, _ := Cut(batch)
		r, err := b.Open(MaxRecord)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := r.Next(); err != nil {
				t.Errorf("%s: %v", codec, err)
			}
		}
		if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %v", codec, err)
		}
		r.Close()
	}
}

// TestLies verifies that a batch with wrong numbers is rejected.
func TestLies(t *testing.T) {
	varints := func(values ...int64) (b []byte) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
		return b
	}
	good := mustEncode(t, batchOf(someRecords(3)...), None, noProducer, NoSequence)
	change := func(at int, value uint32) []byte {
		batch := slices.Clone(good)
		binary.BigEndian.PutUint32(batch[at:], value)
		finish(batch)
		return batch
	}
	one := func(records []byte) []byte { return withRecords(bomb(t, None, 1), None, records) }
	tests := []struct {
		name  string
		batch []byte
		want  error
	}{
		{"more records than there are", change(countAt, 4), ErrMalformed},
		{"far more records than there are", change(countAt, math.MaxInt32), ErrMalformed},
		{"fewer records than there are", change(countAt, 2), ErrMalformed},
		{"a negative number of records", change(countAt, math.MaxUint32), ErrMalformed},
		{"more records than offsets", change(lastDeltaAt, 1), ErrMalformed},
		{"a negative last offset", change(lastDeltaAt, math.MaxUint32), ErrMalformed},
		{"a record of 2 GiB", one(varints(math.MaxInt32)), ErrTooLarge},
		{"a record of 60 MiB that is not there", one(varints(60 << 20)), ErrLarge},
		{"a record of negative length", one(varints(-1)), ErrMalformed},
		{"a key of 2 GiB", one(append(varints(9, 0, 0, 0), varints(math.MaxInt32)...)), ErrMalformed},
		{"a key of negative length", one(varints(6, 0, 0, 0, -2, -1, 0)), ErrMalformed},
		{"2 billion headers", one(append(varints(10, 0, 0, 0, -1, -1), varints(math.MaxInt32)...)), ErrTooLarge},
		{"headers that are not there", one(varints(7, 0, 0, 0, -1, -1, 500)), ErrMalformed},
		{"a record that is longer than its fields", one(append(varints(7, 0, 0, 0, -1, -1, 0), 0)), ErrMalformed},
		{"an offset before the batch", one(varints(6, 0, 0, -1, -1, -1, 0)), ErrMalformed},
		{"an offset after the batch", one(varints(6, 0, 0, 1, -1, -1, 0)), ErrMalformed},
		{"a length that is cut off", one([]byte{0x80}), ErrMalformed},
		{"compression 5", withRecords(good, 5, good[recordsAt:]), ErrUnsupported},
		{"compression that is none", withRecords(good, Zstd, good[recordsAt:]), ErrMalformed},
		{"a block of Snappy over its possible size", withRecords(good, Snappy, binary.AppendUvarint(nil, 1<<30)), ErrMalformed},
		{"a frame of Snappy over the end", withRecords(good, Snappy, append(slices.Clone(xerial[:]), 0x7f, 0xff, 0xff, 0xff)), ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := readAll(t, tt.batch, 1<<20); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	if _, _, err := readAll(t, one(varints(6, 0, 0, 0, -1, -1, 0)), 1<<20); err != nil {
		t.Errorf("%v of a record that is right: the other cases prove nothing", err)
	}
	damaged := slices.Clone(good)
	damaged[len(damaged)-1]++
	if _, _, err := readAll(t, damaged, 1<<20); !errors.Is(err, ErrChecksum) {
		t.Errorf("got %v of a damaged batch", err)
	}
}

// TestCut verifies that Cut returns the offsets of a batch that cannot be read.
func TestCut(t *testing.T) {
	good := mustEncode(t, batchOf(someRecords(3)...), None, noProducer, NoSequence)
	binary.BigEndian.PutUint64(good, 40)
	header := func(at int, b byte) []byte {
		batch := slices.Clone(good)
		batch[at] = b
		return batch
	}
	tests := []struct {
		name        string
		records     []byte
		first, last int64
		rest        int
		whole       bool
	}{
		{"whole", append(slices.Clone(good), good...), 40, 42, len(good), true},
		{"cut off", good[:len(good)-1], 0, 0, 0, false},
		{"nothing", nil, 0, 0, 0, false},
		{"version 1", header(magicAt, 1), 40, 40, 0, true},
		{"damaged", header(crcAt, good[crcAt]+1), 40, 42, 0, true},
		{"a negative length", header(lengthAt, 0xff), 40, 40, 0, true},
		{"a negative offset", header(0, 0xff), 0, 0, 0, true},
		{"an offset that overflows", header(0, 0x7f), 0, 0, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, rest, whole := Cut(tt.records)
			if b.First != tt.first || b.Last != tt.last || len(rest) != tt.rest || whole != tt.whole {
				t.Errorf("got offsets %d to %d, %d bytes left, %t", b.First, b.Last, len(rest), whole)
			}
		})
	}
}

// FuzzReader reads any bytes that a hostile producer or broker may send.
func FuzzReader(f *testing.F) {
	for _, codec := range allCodecs {
		f.Add(mustEncode(f, batchOf(oddRecords[:3]...), codec, noProducer, NoSequence))
	}
	f.Add(mustEncode(f, batchOf(oddRecords[3:5]...), None, noProducer, NoSequence))
	f.Fuzz(func(t *testing.T, response []byte) {
		next := int64(0)
		for {
			b, rest, ok := Cut(response)
			if !ok {
				return
			}
			if len(rest) >= len(response) || b.First < 0 || b.Last < b.First {
				t.Fatalf("offsets %d to %d, %d of %d bytes left", b.First, b.Last, len(rest), len(response))
			}
			response = rest
			next = b.First
			r, err := b.Open(1 << 16)
			if err != nil {
				continue
			}
			for {
				record, offset, err := r.Next()
				if err != nil {
					break
				}
				if offset < next || offset > b.Last || len(record.Key)+len(record.Value) > 1<<16 {
					t.Fatalf("a record of %d bytes at offset %d, after %d", len(record.Key)+len(record.Value), offset, next)
				}
				next = offset + 1
			}
			r.Close()
		}
	})
}

// FuzzRecords reads arbitrary records behind a valid header. FuzzReader seldom gets past the header.
func FuzzRecords(f *testing.F) {
	batch := mustEncode(f, batchOf(oddRecords[:3]...), None, noProducer, NoSequence)
	for _, codec := range allCodecs {
		f.Add(uint8(codec), mustEncode(f, batchOf(oddRecords[:3]...), codec, noProducer, NoSequence)[recordsAt:])
	}
	f.Fuzz(func(t *testing.T, codec uint8, records []byte) {
		_, offsets, err := readAll(t, withRecords(batch, Compression(codec&compressionBits), records), 1<<16)
		if err == nil && len(offsets) != 3 {
			t.Errorf("got %d records and no error", len(offsets))
		}
	})
}
