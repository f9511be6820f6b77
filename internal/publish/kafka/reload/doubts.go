package reload

import (
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// Any client that can write to the checkpoint topic can add an entry for an object. A takeover
// trusts the last entry of an object in the partition where the entries of the object belong. A
// load does not trust the entries that other writers have added since the takeover, because the
// session's index has the position of every object's last event. After such an entry, the load
// writes the correct entry again. If the object has no event, the load removes the entry instead.

// Doubts are the records in one partition of the checkpoint topic that might not describe the last
// event of their object.
type Doubts struct {
	Home   int    // the partition of the checkpoint topic
	Spread int    // number of checkpoint partitions that entries are spread over
	Topics Bounds // the open topics, whose objects the session knows

	Last map[string]Doubt // last record of each partition key, if it is in doubt
}

// Doubt is a record in doubt.
type Doubt struct {
	Offset  int64
	Foreign bool // another writer wrote it since the takeover
	Entry   record.Entry
}

// isHome reports whether the event at a position is recorded in the partition.
func (d *Doubts) isHome(position uint64) bool {
	return position != 0 && takeover.Home(publish.Partition(position), d.Spread) == d.Home
}

// Read applies the next record of the partition, and reports whether the load takes its entry.
// isForeign says that another writer has added the record for an object since the takeover. last is
// the position of the object's last event, or 0 if there is none.
//
// An entry is also in doubt if its object has no event, or an event that is recorded in another
// partition. Another writer wrote such an entry, and a takeover might have trusted it.
func (d *Doubts) Read(offset int64, key string, c record.Checkpoint, isForeign bool, last uint64) bool {
	_, known := d.Topics[c.Entry.Topic]
	isStray := known && c.Entry.Type == "" && !d.isHome(last)
	switch {
	case isForeign, isStray:
		d.Last[key] = Doubt{offset, isForeign, c.Entry}
	case c.Kind == record.OfEvent, c.Kind == record.Removed:
		delete(d.Last, key)
		return true
	}
	return false
}

// Remedy is the action of a load for a record in doubt.
type Remedy int

// The values of Remedy.
const (
	ReadEvent Remedy = iota // read the object's last event
	Later                   // leave the record to a later load
	Accept                  // the record is correct
	Trust                   // a takeover trusted the record, and the load takes its entry
	Replace                 // write the entry of the last event
	Erase                   // remove the entry, because no entry of the object belongs in the partition
)

// Remedy decides what to do about the record of a key. last is the position of the object's last
// event, or 0 if there is none. found points to the entry of that event. It is nil until the event
// has been read, and points to a zero entry if the topic does not hold the event.
func (d *Doubts) Remedy(key string, last uint64, found *record.Entry) Remedy {
	doubt := d.Last[key]
	switch {
	case d.isHome(last) && found == nil:
		return ReadEvent
	case d.isHome(last) && *found == record.Entry{}:
		return Later
	case d.isHome(last) && found.Topic == doubt.Entry.Topic && found.Position() == doubt.Entry.Position() && found.IsSameEvent(doubt.Entry):
		return Accept
	case d.isHome(last):
		return Replace
	case last != 0 && last == doubt.Entry.Position() && !doubt.Foreign:
		return Trust
	}
	return Erase
}
