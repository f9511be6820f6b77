package index

import (
	"maps"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// ForeignRecord is another writer's record with the key of one of the cluster's objects.
type ForeignRecord struct {
	// Entry is the entry of the record. If the record is not an event, Entry has only its place and
	// time. If a takeover found such a record, Entry.Foreign is set, and the other fields describe
	// the last event before the record.
	Entry     record.Entry
	Tombstone bool // the record is a tombstone, or a delete with its tombstone after it

	found bool // [Foreign.Unanswered] has set the position in the index to that of this record
}

// isAnswered reports whether the record needs no answer: a later event of the key answers it, or it
// is the tombstone of an unknown object. last is the position of the object's last event, or 0 if
// there is none.
//
// The record is in the partition of its key. The last event can be in another partition, because a
// takeover trusted a record there. Such an event never counts as later.
func (f ForeignRecord) isAnswered(last uint64) bool {
	position := f.Entry.Position()
	return last > position && publish.Partition(last) == publish.Partition(position) || last == 0 && f.Tombstone
}

// Foreign holds the last record of another writer for each partition key. The zero value is empty
// and ready to use.
type Foreign struct {
	mu   sync.Mutex
	last map[string]ForeignRecord
}

// Add replaces the last records of some keys.
func (f *Foreign) Add(found map[string]ForeignRecord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]ForeignRecord{}
	}
	maps.Copy(f.last, found)
}

// Unanswered returns the entries of the records that are still the last of their keys. It drops
// records that need no answer, and skips keys with an event in flight. It also drops the session's own
// records, which a load can read before they are acknowledged. It recognizes such a record because the
// index already has its position, and no call of Unanswered has set that position.
func (f *Foreign) Unanswered(x *Index) map[string]record.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[string]record.Entry{}
	for key, r := range f.last {
		id, position := Of([]byte(key)), r.Entry.Position()
		if r.isAnswered(x.Position(id)) {
			delete(f.last, key)
			continue
		}
		r.found = x.Found(id, position) || r.found
		f.last[key] = r
		switch {
		case x.Position(id) != position: // the object has an event in flight
		case r.found:
			last[key] = r.Entry
		default:
			delete(f.last, key)
		}
	}
	return last
}

// First returns the lowest offset of the records in each partition, by topic.
func (f *Foreign) First() map[string]map[int]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := map[string]map[int]int64{}
	for _, r := range f.last {
		if first[r.Entry.Topic] == nil {
			first[r.Entry.Topic] = map[int]int64{}
		}
		offsets := first[r.Entry.Topic]
		if lowest, found := offsets[r.Entry.Partition]; !found || r.Entry.Offset < lowest {
			offsets[r.Entry.Partition] = r.Entry.Offset
		}
	}
	return first
}
