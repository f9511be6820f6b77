package takeover

import "github.com/kuberelay/kuberelay/internal/publish/kafka/record"

// Record is a record of an event topic. The key is "" if the record is not the cluster's, or another one
// than was asked for.
type Record struct {
	Offset int64
	Key    string
	Entry  record.Entry // zero for a tombstone that identifies no removal
	Valid  bool         // whether a forwarder can have written the record
	Time   int64        // in seconds since 1970
}

// Read is a range of offsets that must be read. To is exclusive.
type Read struct {
	From, To int64
	// Key, if set, is the key of a record that is looked up: the range is one offset, and the log may have no
	// record there.
	Key string
	// Reason says why the partition is read from its start.
	Reason Reason
}

// Reason is why a partition is read from its start although the checkpoint topic has entries of it.
type Reason int

// The reasons.
const (
	NoReason Reason = iota
	Mismatch        // the log does not have the records that were recorded last
	NoMarker        // the checkpoint topic has no marker of the partition
)

// none is the entry of nothing.
var none record.Entry

// Keyed is a checkpoint entry with its key. The key is "" for none.
type Keyed struct {
	Key string
	record.Entry
}

// at returns the offset, -1 for none.
func (r Keyed) at() int64 {
	if r.Key == "" {
		return -1
	}
	return r.Offset
}

// LookUp returns the read of the record that an entry describes.
func (r Keyed) LookUp() Read { return Read{From: r.Offset, To: r.Offset + 1, Key: r.Key} }

// Is reports whether a record is the one that the entry describes.
func (r Keyed) Is(of Record) bool {
	return of.Key == r.Key && of.Valid && of.Entry.IsSameEvent(r.Entry)
}

// readUpTo returns the offset up to which the writer of a marker has read a partition, given the
// offset up to which it has recorded its own events.
func (r Keyed) readUpTo(recorded int64) int64 {
	if r.Unread == 0 {
		return recorded
	}
	return min(recorded, r.Unread)
}

// Partition finds out what one partition of an event topic holds between what is recorded and the session's
// marker.
//
// The entries of an event partition are in one partition of the checkpoint topic, and the
// entry of the writer's marker comes after those of everything before the marker. So if the checkpoint
// partition lost its end, it still has every entry up to the highest offset that it holds.
//
// Brokers also lose the end of an event log: if an out-of-sync replica becomes leader,
// after a power loss, or if a disk is restored from a copy. Another writer may have written
// there since. So Next asks for two records: the marker of the previous writer, and the
// record with the highest recorded offset if it comes after the marker. If both are still
// the records in the checkpoint, nothing below them is lost, because the brokers reject a
// writer that continues after a loss, unless they lost its marker too. Compaction can
// remove the marker. It can also remove the other record, but only if a later record has
// the same key, and the rest of the log has that one.
//
// If the entries do not match the log, Next asks for all of it.
type Partition struct {
	number  int
	topic   *Topic
	former  Keyed        // the marker of the previous writer
	highest Keyed        // the entry with the highest offset
	start   int64        // the first offset of the log
	marker  record.Entry // of the session: nobody else writes below it any more

	next      step
	from      int64 // of the rest
	found, is bool  // whether the log has a record where one was looked up, and whether it is that one
	compacted bool  // whether the log lacks the record with the highest recorded offset

	trusted bool // the checkpoint entries of the partition are correct
	repeats bool // whether what was read has several events of a key
	last    map[string]lastRecord
	invalid map[string]record.Entry // only the place: the last record of a key, if it is invalid
	unread  int64                   // the first offset of a foreign record that is not answered, 0 for none
}

// lastRecord is the last record of a key; its entry is zero if the key has no event any more.
type lastRecord struct {
	offset int64
	entry  record.Entry
}

// step is what a partition reads.
type step int

const (
	nothing step = iota
	formerMarker
	highestEntry
	rest
	whole
	done
)

// Next returns what must be read next, after everything before was read. It returns false when the content of
// the partition is known.
func (p *Partition) Next() (Read, bool) {
	p.next = p.after(p.next)
	p.found, p.is = false, false
	switch p.next {
	case formerMarker:
		return p.former.LookUp(), true
	case highestEntry:
		return p.highest.LookUp(), true
	case rest, whole:
		p.last, p.invalid = map[string]lastRecord{}, map[string]record.Entry{}
		read := Read{From: p.from, To: p.marker.Offset}
		if p.next == whole {
			read.From, read.Reason = 0, p.reason()
		}
		return read, true
	}
	return Read{}, false
}

// after returns the step after another one.
func (p *Partition) after(s step) step {
	switch s {
	case nothing:
		switch {
		case p.former.Key == "" || max(p.former.Offset, p.highest.at()) >= p.marker.Offset:
			return whole
		case p.former.Offset >= p.start:
			return formerMarker
		}
		return p.highestIfStored()
	case formerMarker:
		switch {
		case p.found && !p.is:
			return whole
		case p.is && p.highest.at() < p.former.Offset:
			return p.restFrom(p.former.Offset + 1)
		}
		return p.highestIfStored()
	case highestEntry:
		if p.found && !p.is {
			return whole
		}
		p.compacted = !p.found
		return p.restFrom(p.highest.Offset + 1)
	case rest:
		if p.compacted && !p.follows(p.highest) {
			return whole
		}
		p.trusted = true
	}
	return done
}

func (p *Partition) highestIfStored() step {
	if p.highest.at() < p.start {
		return whole
	}
	return highestEntry
}

// restFrom returns the step that reads what follows an offset up to which everything is recorded.
func (p *Partition) restFrom(recorded int64) step {
	p.from = p.former.readUpTo(recorded)
	return rest
}

func (p *Partition) reason() Reason {
	switch {
	case p.former.Key != "":
		return Mismatch
	case p.highest.Key != "":
		return NoMarker
	}
	return NoReason
}

// follows reports whether the log has a later record of the key.
func (p *Partition) follows(r Keyed) bool {
	valid, isValid := p.last[r.Key]
	invalid, isInvalid := p.invalid[r.Key]
	return isValid && valid.offset > r.Offset || isInvalid && invalid.Offset > r.Offset
}

// Read applies the next record of what Next asked for. Calls for different partitions may be concurrent. Read
// keeps the last valid record of each key, and the invalid record after it, if any. A tombstone directly
// after the state of an existing object is invalid too, because a forwarder writes a
// tombstone only after a removal.
func (p *Partition) Read(r Record) {
	switch p.next {
	case formerMarker:
		p.found, p.is = true, p.former.Is(r)
		return
	case highestEntry:
		p.found, p.is = true, p.highest.Is(r)
		return
	}
	if r.Key == "" {
		return
	}
	before := p.topic.recordedIn(p.number, r.Key)
	if last, read := p.last[r.Key]; read {
		before = last.entry
	}
	switch {
	case !r.Valid, r.Entry == none && isState(before):
		p.invalid[r.Key] = record.Entry{Partition: p.number, Offset: r.Offset, Time: r.Time}
	case !isWriterMarker(r.Entry):
		_, repeats := p.last[r.Key]
		p.repeats = p.repeats || repeats
		p.last[r.Key] = lastRecord{r.Offset, r.Entry}
		delete(p.invalid, r.Key)
	}
}
