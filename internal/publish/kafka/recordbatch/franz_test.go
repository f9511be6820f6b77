package recordbatch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFranz compares the encoded batches with the requests of franz-go's producer for the same
// records. With every compression except snappy, the bytes are identical. For snappy, franz-go
// writes one block without framing, so the test compares the header without length and checksum, and
// the uncompressed records.
func TestFranz(t *testing.T) {
	for _, test := range []struct {
		codec Compression
		franz kgo.CompressionCodec
		exact bool
	}{
		{None, kgo.NoCompression(), true},
		{Gzip, kgo.GzipCompression(), true},
		{LZ4, kgo.Lz4Compression(), true},
		{Snappy, kgo.SnappyCompression(), false},
		{Zstd, kgo.ZstdCompression().WithLevel(1), true}, // the fastest level
	} {
		t.Run(test.codec.String(), func(t *testing.T) {
			produced := franzBatches(t, [][]Record{oddRecords, someRecords(70)}, kgo.ProducerBatchCompression(test.franz))
			sequence := int32(1) // franzBatches sends one record first
			for i, records := range [][]Record{oddRecords, someRecords(70)} {
				want := produced[i]
				header := headerOf(t, want)
				if header.ProducerID < 0 || header.FirstSequence != sequence {
					t.Fatalf("franz-go's batch %d is of producer %d, sequence %d", i, header.ProducerID, header.FirstSequence)
				}
				got := mustEncode(t, batchOf(records...), test.codec, Producer{ID: header.ProducerID, Epoch: header.ProducerEpoch}, sequence)
				sequence = NextSequence(sequence, len(records))
				compare(t, want, got, test.exact)
			}
		})
	}
}

// TestFranzWithoutIdempotence verifies that the batches are identical without idempotence, except for the
// sequence: franz-go writes sequence 0, and this package writes -1 like Java. Without a producer ID, brokers
// ignore the sequence.
func TestFranzWithoutIdempotence(t *testing.T) {
	want := franzBatches(t, [][]Record{oddRecords}, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableIdempotentWrite())[0]
	if sequence := binary.BigEndian.Uint32(want[53:]); sequence != 0 {
		t.Fatalf("franz-go wrote sequence %d", sequence)
	}
	binary.BigEndian.PutUint32(want[53:], 1<<32-1)
	binary.BigEndian.PutUint32(want[17:], crc32.Checksum(want[21:], crc32.MakeTable(crc32.Castagnoli)))
	compare(t, want, mustEncode(t, batchOf(oddRecords...), None, noProducer, NoSequence), true)
}

func compare(t *testing.T, want, got []byte, exact bool) {
	t.Helper()
	if exact {
		if !bytes.Equal(want, got) {
			t.Errorf("got %d bytes, want %d; header (-want +got):\n%s", len(got), len(want), cmp.Diff(headerOf(t, want), headerOf(t, got)))
		}
		return
	}
	wantHeader, gotHeader := headerOf(t, want), headerOf(t, got)
	if bytes.Equal(wantHeader.Records, gotHeader.Records) {
		t.Error("the compressed records are the same: compare them exactly")
	}
	var plain [2][]byte
	for i, h := range []*kmsg.RecordBatch{&wantHeader, &gotHeader} {
		var err error
		if plain[i], err = kgo.DefaultDecompressor().Decompress(h.Records, kgo.CompressionCodecType(h.Attributes&7)); err != nil {
			t.Fatal(err)
		}
		h.Records, h.Length, h.CRC = nil, 0, 0
	}
	if !bytes.Equal(plain[0], plain[1]) {
		t.Error("the records differ")
	}
	if diff := cmp.Diff(wantHeader, gotHeader); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func headerOf(t *testing.T, batch []byte) kmsg.RecordBatch {
	t.Helper()
	var header kmsg.RecordBatch
	if err := header.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	return header
}

// franzBatches returns the bytes that franz-go sends for each list of records, as one batch each.
func franzBatches(t *testing.T, batches [][]Record, opts ...kgo.Opt) [][]byte {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "topic"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	seen := make(chan []byte, 16)
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				seen <- bytes.Clone(partition.Records)
			}
		}
		return nil, nil, false // the fake broker still stores the batch
	})
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ManualFlushing(), kgo.DefaultProduceTopic("topic"), kgo.ProducerBatchMaxBytes(1 << 24),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func(records []Record) [][]byte {
		for _, r := range records {
			record := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, kgo.RecordHeader(h))
			}
			client.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var sent [][]byte
		for range len(seen) {
			sent = append(sent, <-seen)
		}
		return sent
	}
	// While the client fetches the metadata of a new topic, it can send records in any number of
	// batches. So one record goes first.
	produce([]Record{{}})
	var produced [][]byte
	for _, records := range batches {
		sent := produce(records)
		if len(sent) != 1 {
			t.Fatalf("franz-go sent %d batches, want one", len(sent))
		}
		produced = append(produced, sent[0])
	}
	return produced
}
