package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// Record is an undecoded record, as the topic stores it. A verifier decodes it with its own decoder.
type Record = broker.Record

// NextRaw yields the undecoded records of all clusters since the previous call, up to the current end
// of each partition. yield must not keep or change a record. NextRaw calls refused for each batch that
// cannot be read, with the delivery of the batch's first record. It does not call refused and yield
// concurrently. If NextRaw returns an error, it might have yielded some records. The next call continues
// after these.
func (s *Scan) NextRaw(ctx context.Context, yield func(Record, publish.Delivery) error, refused func(publish.Delivery, error)) error {
	var mu sync.Mutex // partitions are read concurrently
	var failed error
	err := s.step(ctx, func(ctx context.Context, p *partition, end int64, alive func()) error {
		return p.read(ctx, end, func(r broker.Record) error {
			alive()
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = yield(r, p.delivery(r))
			}
			return failed
		}, func(r broker.Refused) {
			alive()
			mu.Lock()
			defer mu.Unlock()
			refused(p.delivery(Record{Offset: r.First}), refusal(r))
		})
	})
	if failed != nil {
		return failed
	}
	return err
}

// RawAt returns the record at a position of a topic, and reports whether the record still exists.
func (b *Bus) RawAt(ctx context.Context, topic string, position uint64) (Record, bool, error) {
	r, found, err := b.client.ReadOne(ctx, topic, publish.Partition(position), publish.Offset(position))
	if errors.Is(err, broker.ErrNoTopic) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read the record at offset %d of partition %d of topic %s: %w", publish.Offset(position), publish.Partition(position), topic, err)
	}
	return r, found, nil
}
