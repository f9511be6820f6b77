package index

import (
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// ForeignRecord is a record of another writer with the key of one of the cluster's objects.
type ForeignRecord struct {
	Entry     record.Entry // only the place and the time, if the record is not an event and Entry.Foreign is false
	Tombstone bool         // the record is a tombstone, or a delete with its tombstone after it

	found bool // a call of [Foreign.Unanswered] has set the position in the index to that of this record
}

// IsAnswered reports whether the record needs no answer: a later event of the key answers it, or it is
// the tombstone of an unknown object. last is the position of the object's last
// event, 0 for none.
//
// The record is in the partition of its key. The last event can be in another partition, because a
// takeover trusted a record there, but then it never counts as later.
func (f ForeignRecord) IsAnswered(last uint64) bool {
	position := f.Entry.Position()
	return last > position && publish.Partition(last) == publish.Partition(position) || last == 0 && f.Tombstone
}
