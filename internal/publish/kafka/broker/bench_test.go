package broker

import (
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// fill writes records like those of a checkpoint, in batches, and returns the end offset of each
// partition.
func fill(b *testing.B, c *Client, topic string, partitions, records, perBatch int, codec recordbatch.Compression) []int64 {
	b.Helper()
	ends := make([]int64, partitions)
	var encoded []byte
	for i := 0; i < records; {
		p := i / perBatch % partitions
		var batched recordbatch.Batch
		for ; batched.Len() < perBatch && i < records; i++ {
			batched.Append(record(fmt.Sprintf("cluster/apps/deployments/namespace-%d/name-%d", i%100, i),
				fmt.Sprintf(`{"uid":"0b1c2d3e-0000-4000-8000-%012d","rv":"%d","partition":%d,"offset":%d}`, i, 1000000+i, p, i)))
		}
		var err error
		if encoded, err = batched.Encode(encoded[:0], codec, NoProducer, recordbatch.NoSequence); err != nil {
			b.Fatal(err)
		}
		offset, err := c.Produce(within(b), topic, p, encoded)
		if err != nil {
			b.Fatal(err)
		}
		ends[p] = offset + int64(batched.Len())
	}
	return ends
}

// BenchmarkRead reads a checkpoint of 300,000 records in three partitions.
func BenchmarkRead(b *testing.B) {
	broker := kafkabrokertest.Shared(b)
	const partitions, records = 3, 300_000
	for _, codec := range []recordbatch.Compression{recordbatch.Zstd, recordbatch.LZ4, recordbatch.None} {
		b.Run(codec.String(), func(b *testing.B) {
			c := newClient(b, broker.Addr())
			topic := kafkabrokertest.Topic(b, broker, "bench", partitions, nil)
			ends := fill(b, c, topic, partitions, records, 1000, codec)
			b.ReportAllocs()
			for b.Loop() {
				var read atomic.Int64
				var group errgroup.Group
				for p, end := range ends {
					group.Go(func() error {
						n := int64(0)
						_, err := c.Read(within(b), topic, p, 0, end, func(Record) error { n++; return nil })
						read.Add(n)
						return err
					})
				}
				if err := group.Wait(); err != nil {
					b.Fatal(err)
				}
				if read.Load() != records {
					b.Fatalf("read %d records", read.Load())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/op")
		})
	}
}
