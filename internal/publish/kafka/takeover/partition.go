package takeover

import "github.com/kuberelay/kuberelay/internal/publish/kafka/record"

// Record is a record of an event topic. The key is "" if the record does not belong to the cluster,
// or if its key is not the key that was looked up.
type Record struct {
	Offset int64
	Key    string
	Entry  record.Entry // zero for a tombstone that identifies no removal
	Valid  bool         // whether a forwarder might have written the record
	Time   int64        // in seconds since 1970
}

// Read is a range of offsets to read. To is exclusive.
type Read struct {
	From, To int64
	// Key, if set, is the key of a record to look up. Then the range is one offset, at which the log
	// might have no record.
	Key string
	// Reason says why the partition is read from its start.
	Reason Reason
}

// Reason is the reason to read a partition from its start although the checkpoint topic has entries
// for it.
type Reason int

// The values of Reason.
const (
	NoReason Reason = iota
	Mismatch        // the log lacks the last recorded events
	NoMarker        // the checkpoint topic has no marker for the partition
)

// none is the zero entry.
var none record.Entry

// Keyed is a checkpoint entry with its key. The key is "" if there is no entry.
type Keyed struct {
	Key string
	record.Entry
}

// at returns the offset of the entry, or -1 if the key is "".
func (r Keyed) at() int64 {
	if r.Key == "" {
		return -1
	}
	return r.Offset
}

// LookUp returns the read that looks up the record of the entry.
func (r Keyed) LookUp() Read { return Read{From: r.Offset, To: r.Offset + 1, Key: r.Key} }

// Is reports whether the entry describes the record.
func (r Keyed) Is(of Record) bool {
	return of.Key == r.Key && of.Valid && of.Entry.IsSameEvent(r.Entry)
}

// readUpTo returns the offset up to which the writer of the marker has read the partition. recorded
// is the offset up to which that writer has recorded its own events.
func (r Keyed) readUpTo(recorded int64) int64 {
	if r.Unread == 0 {
		return recorded
	}
	return min(recorded, r.Unread)
}

// Partition determines the last records of one event partition, from the checkpoint entries and from
// the log up to the session's marker.
//
// All entries of an event partition are in one partition of the checkpoint topic. The writer's
// marker entry comes after the entries of all records before the marker. So a checkpoint partition
// that lost its end still has every entry up to the highest offset in it.
//
// Brokers can also lose the end of an event log: when an out-of-sync replica becomes leader, after a power
// loss, or when a disk is restored from a copy. Another writer might have written there since. So Next asks
// for two records: the marker of the previous writer, and the record with the highest recorded offset if this
// record follows the marker. If both records still match the checkpoint, nothing below them is lost: after a
// loss, the brokers reject further records from a writer, unless they also lost that writer's marker.
// Compaction can remove the marker. It can also remove the other record, but only if a later record has the
// same key. Then the rest of the log contains that later record.
//
// If the entries do not match the log, Next asks for the whole log.
type Partition struct {
	number  int
	topic   *Topic
	former  Keyed        // the marker of the previous writer
	highest Keyed        // the entry with the highest offset
	start   int64        // the first offset of the log
	marker  record.Entry // the session's marker, up to which the log is read

	next      step
	from      int64 // the first offset of the rest
	found, is bool  // whether the lookup found a record, and whether it is the expected one
	compacted bool  // whether the log lacks the record with the highest recorded offset

	trusted bool // the checkpoint entries of the partition are correct
	repeats bool // whether the records that were read include several events of a key
	last    map[string]lastRecord
	invalid map[string]record.Entry // the last record of a key if that is invalid; only its partition, offset, and time
	unread  int64                   // the offset of the first unanswered foreign record, or 0 if there is none
}

// lastRecord is the last record of a key. Its entry is zero if the key no longer has an event.
type lastRecord struct {
	offset int64
	entry  record.Entry
}

// step is one step in reading a partition.
type step int

const (
	nothing step = iota
	formerMarker
	highestEntry
	rest
	whole
	done
)

// Next returns the next range to read. The caller first passes every record of the previous range to
// Read. Next returns false when the content of the partition is known.
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

// after returns the step that follows s.
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

// restFrom sets the first offset of the rest of the log, and returns the step that reads it.
// recorded is the offset below which the checkpoint has every event.
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

// follows reports whether the log has a later record with the key of r.
func (p *Partition) follows(r Keyed) bool {
	valid, isValid := p.last[r.Key]
	invalid, isInvalid := p.invalid[r.Key]
	return isValid && valid.offset > r.Offset || isInvalid && invalid.Offset > r.Offset
}

// Read applies the next record of the range that Next returned. Calls for different partitions may
// be concurrent. Read keeps the last valid record of each key, and the invalid record after it, if
// any. A tombstone directly after the state of an existing object is invalid too, because a
// forwarder writes a tombstone only after a removal.
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
