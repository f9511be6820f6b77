package sender

import (
	"time"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

// Item is one record in the queue of a sender.
type Item struct {
	Record recordbatch.Record
	// Tombstone, if set, is the next record of the partition. Both records are always in one batch,
	// and brokers store and truncate whole batches.
	Tombstone *recordbatch.Record
	// Done is called exactly once, with the offset of the record or with an error, unless
	// [Sender.Withdraw] removes the item. If the error wraps [publish.ErrNotSent], the record is
	// not stored. The items of one partition complete in the order of their offsets.
	Done func(offset int64, err error)
}

// last returns the last record of the item.
func (it *Item) last() recordbatch.Record {
	if it.Tombstone != nil {
		return *it.Tombstone
	}
	return it.Record
}

// batchOf returns a batch of the first n items: as many as fit into limit bytes, but at least one.
// It sets the timestamps of their records.
func batchOf(items []*Item, limit int, timestamp time.Time) (batch *recordbatch.Batch, n int) {
	batch = &recordbatch.Batch{}
	for n < len(items) && (n == 0 || batch.SizeWith(items[n].Record) <= limit) {
		it := items[n]
		it.Record.Timestamp = timestamp
		batch.Append(it.Record)
		if it.Tombstone != nil {
			it.Tombstone.Timestamp = timestamp
			batch.Append(*it.Tombstone)
		}
		n++
	}
	return batch, n
}

// complete calls Done of each item, in the order of the offsets.
func complete(items []*Item, base int64, err error) {
	for _, it := range items {
		offset := base
		if base++; it.Tombstone != nil {
			base++
		}
		it.Done(offset, err)
	}
}
