package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// hostile returns batches that another producer can write to the topic, each with the reason why
// a read skips it. Each batch occupies one offset.
func hostile(t testing.TB) []struct {
	reason error
	batch  []byte
} {
	large := recordbatch.Record{Key: []byte("large"), Value: make([]byte, recordbatch.MaxRecord)}
	return []struct {
		reason error
		batch  []byte
	}{
		{recordbatch.ErrTooLarge, batch(t, recordbatch.Zstd, NoProducer, recordbatch.NoSequence, large)},
		{recordbatch.ErrTooLarge, batch(t, recordbatch.Gzip, NoProducer, recordbatch.NoSequence, large)},
		{recordbatch.ErrMalformed, changed(t, func(b []byte) { b[len(b)-3]++ })}, // changes the length of the value
		{recordbatch.ErrUnsupported, changed(t, func(b []byte) { b[22] = 7 })},   // changes the compression
		{recordbatch.ErrMalformed, changed(t, func(b []byte) { b[22] = byte(recordbatch.Snappy) })},
	}
}

// changed returns a changed batch with a correct checksum.
func changed(t testing.TB, change func([]byte)) []byte {
	b := one(t)
	change(b)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// response returns an answer for every fetch of the topic: the batches from the requested offset on.
func response(batches [][]byte) func(*kmsg.FetchRequest, *kmsg.FetchResponse) {
	return func(req *kmsg.FetchRequest, res *kmsg.FetchResponse) {
		empty(int64(len(batches)))(req, res)
		for offset, b := range batches {
			if int64(offset) >= req.Topics[0].Partitions[0].FetchOffset {
				b = slices.Clone(b)
				binary.BigEndian.PutUint64(b, uint64(offset))
				p := &res.Topics[0].Partitions[0]
				p.RecordBatches = append(p.RecordBatches, b...)
			}
		}
	}
}

// TestReadSkipsWhatItRefuses verifies that a read reports and skips batches that it cannot read,
// and that these batches need little memory.
func TestReadSkipsWhatItRefuses(t *testing.T) {
	var batches [][]byte
	var want []string
	var wantRefused []Refused
	for _, h := range hostile(t) {
		want = append(want, fmt.Sprintf("%d a=1", len(batches)))
		at := int64(len(batches) + 1)
		wantRefused = append(wantRefused, Refused{faulty, 0, at, at, h.reason})
		batches = append(batches, one(t), h.batch)
	}
	end := int64(len(batches))
	cluster, c := newFake(t)
	answers(cluster, 1<<30, response(batches))
	var refused []Refused
	refuse := func(r Refused) { refused = append(refused, r) }

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var got []string
	_, err := c.Read(within(t), faulty, 0, 0, end, func(r Record) error { got = append(got, show(r)); return nil }, refuse)
	runtime.ReadMemStats(&after)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	isSame := func(got, want Refused) bool {
		is := errors.Is(got.Err, want.Err)
		got.Err = want.Err
		return is && got == want
	}
	if !slices.EqualFunc(refused, wantRefused, isSame) {
		t.Errorf("refused %v, want %v", refused, wantRefused)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 50<<20 {
		t.Errorf("allocated %d MiB", allocated>>20)
	}

	for offset := range end {
		refused = nil
		r, found, err := c.ReadOne(within(t), faulty, 0, offset, refuse)
		if is := offset%2 == 0; err != nil || found != is || is && show(r) != want[offset/2] || is == (len(refused) > 0) {
			t.Errorf("at %d: got %s, %t, %v, refused %v", offset, show(r), found, err, refused)
		}
		r, found, err = c.ReadFirst(within(t), faulty, 0, offset, end)
		if is := offset+1 < end; err != nil || found != is || is && show(r) != want[(offset+1)/2] {
			t.Errorf("first from %d: got %s, %t, %v", offset, show(r), found, err)
		}
	}
}

// TestDamagedResponse verifies that a read fetches a batch again if its checksum is wrong. If the
// checksum is wrong again, the read refuses the batch.
func TestDamagedResponse(t *testing.T) {
	damaged := one(t)
	damaged[len(damaged)-1]++
	for name, times := range map[string]int32{"once": 1, "always": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			cluster, c := newFake(t)
			put(t, c, faulty, 0, record("a", "1"))
			answers(cluster, times, response([][]byte{damaged}))
			got, refused := 0, 0
			_, err := c.Read(within(t), faulty, 0, 0, 1, func(Record) error { got++; return nil }, func(Refused) { refused++ })
			if want := min(int(times)-1, 1); err != nil || got != 1-want || refused != want {
				t.Errorf("got %d records, refused %d, %v", got, refused, err)
			}
		})
	}
}

// TestReadOneInRead verifies that the consumer of a large record can read another large record. If
// both reads used the same slot, they would deadlock.
func TestReadOneInRead(t *testing.T) {
	cluster, c := newFake(t)
	large := batch(t, recordbatch.Zstd, NoProducer, recordbatch.NoSequence, recordbatch.Record{Key: []byte("k"), Value: make([]byte, 2*smallRecord)})
	answers(cluster, 1<<30, response([][]byte{one(t), large}))
	read := 0
	_, err := c.Read(within(t), faulty, 0, 0, 2, func(Record) error {
		other, found, err := c.ReadOne(within(t), faulty, 0, 1)
		if !found || len(other.Value) != 2*smallRecord {
			err = errors.Join(err, fmt.Errorf("found %t, %d bytes", found, len(other.Value)))
		}
		read++
		return err
	})
	if err != nil || read != 2 {
		t.Errorf("read %d records, %v", read, err)
	}
}
