package takeover

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// Topic determines the content of one event topic.
type Topic struct {
	// Spread is the number of partitions that keys are spread over. Lookups sets it.
	Spread int

	name    string
	records int // see [Checkpoint.Records]
	recorded
	erased   map[string]erasedEntry
	parts    []*Partition
	restored []Lookup
	foreign  map[string]record.Entry
}

// NewTopic returns a topic that is not recorded in the checkpoint topic. records is
// [Checkpoint.Records].
func NewTopic(name string, partitions, records int) *Topic {
	return newTopic(name, partitions, records, recorded{}, nil)
}

func newTopic(name string, partitions, records int, of recorded, erased map[string]erasedEntry) *Topic {
	t := &Topic{name: name, records: records, recorded: of, erased: erased, parts: make([]*Partition, partitions), foreign: map[string]record.Entry{}}
	if t.entries == nil {
		t.entries = map[string]record.Entry{}
	}
	for n := range t.parts {
		t.parts[n] = &Partition{number: n, topic: t}
	}
	for key, e := range t.entries {
		switch {
		case e.Partition >= partitions:
		case isWriterMarker(e):
			t.parts[e.Partition].former = Keyed{key, e}
			delete(t.entries, key)
		case t.parts[e.Partition].highest.at() < e.Offset:
			t.parts[e.Partition].highest = Keyed{key, e}
		}
	}
	return t
}

func isWriterMarker(e record.Entry) bool { return e.Type == event.WriterStarted }

// Begin sets the bounds of a partition's log: its first offset, and the session's marker.
func (t *Topic) Begin(partition int, start int64, marker record.Entry) *Partition {
	p := t.parts[partition]
	p.start, p.marker = start, marker
	return p
}

// Entries returns the entry of the last event of every key. They are complete after Update.
func (t *Topic) Entries() map[string]record.Entry { return t.entries }

// Foreign returns an entry for each object whose last record is invalid. The entry has the
// partition, offset, and time of that record, and otherwise describes the last event before it.
// Call Foreign after Update.
func (t *Topic) Foreign() map[string]record.Entry { return t.foreign }

// Unread returns the first offset of a foreign record in a partition, or 0 if there is none. Call
// Unread after Update.
func (t *Topic) Unread(partition int) int64 { return t.parts[partition].unread }

// IgnoredState returns the recorded number of partitions in use, and whether the topic ignores that
// number as wrong. Call IgnoredState after Lookups.
func (t *Topic) IgnoredState() (int, bool) {
	n := t.state.Partitions
	return n, n > 0 && t.Spread != min(n, len(t.parts))
}

// Times returns the partition and the time, in seconds since 1970, of each recorded event and marker. A
// record that the session writes must not have an earlier time. Call Times before Update.
func (t *Topic) Times() iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		for _, e := range t.entries {
			if e.Partition < len(t.parts) && !yield(e.Partition, e.Time) {
				return
			}
		}
		for n, p := range t.parts {
			if p.former.Key != "" && !yield(n, p.former.Time) {
				return
			}
		}
	}
}

// holds reports whether the topic still holds the record of an entry.
func (t *Topic) holds(e record.Entry) bool {
	return e.Partition < len(t.parts) && t.parts[e.Partition].trusted && e.Offset >= t.parts[e.Partition].start
}

// has reports whether a partition holds a record of a key.
func (t *Topic) has(partition int, key string) bool {
	if _, found := t.parts[partition].last[key]; found {
		return true
	}
	e, isRecorded := t.entries[key]
	return isRecorded && e.Partition == partition && t.holds(e)
}

// isLost reports whether the topic no longer holds any record of a recorded key. A claim without a
// value does not count as lost if compaction might have removed its record, because the entry names
// the owner.
func (t *Topic) isLost(key string, e record.Entry) bool {
	if e.Type == event.ClusterClaimed && e.NoValue && e.Partition < len(t.parts) && e.Offset < t.parts[e.Partition].marker.Offset {
		return false
	}
	for _, p := range t.parts {
		if _, found := p.last[key]; found {
			return false
		}
	}
	return !t.holds(e)
}

// recordedIn returns the entry of a key if the entry is in the partition, even if the entry was
// erased.
func (t *Topic) recordedIn(partition int, key string) record.Entry {
	e := t.entries[key]
	if was, found := t.erased[key]; found {
		e = was.Entry
	}
	if e.Partition != partition {
		return none
	}
	return e
}

// maxLookups limits the events that a takeover looks up to restore the entries of one topic, because
// another writer can erase any number of entries.
const maxLookups = 10_000

// Lookup is an erased entry. The caller restores the entry if the topic still has the event.
type Lookup struct {
	Keyed
	Home int   // the partition of the checkpoint topic
	By   int64 // in that partition, the offset of the record that erased the entry
}

// Lookups returns the erased entries whose events the caller must look up, because the topic has no
// later record of the object. It returns at most maxLookups of them, and their total number. Call
// Lookups after all partitions were read.
func (t *Topic) Lookups() (some []Lookup, all int) {
	t.Spread = t.keySpread()
	for key, e := range t.erased {
		if !t.holds(e.Entry) || binding.Partition([]byte(key), t.Spread) != e.Partition {
			continue
		}
		if _, follows := t.parts[e.Partition].last[key]; follows {
			continue
		}
		if all++; all <= maxLookups {
			some = append(some, Lookup{Keyed{key, e.Entry}, Home(e.Partition, t.records), e.by})
		}
	}
	return some, all
}

// Restore restores an erased entry. The caller has found the event in the topic.
func (t *Topic) Restore(l Lookup) {
	t.entries[l.Key] = l.Entry
	t.restored = append(t.restored, l)
}

// dropStrays drops records outside the partition of their key, if that partition also has a record
// of the key. Another writer wrote the dropped records.
func (t *Topic) dropStrays() {
	for n, p := range t.parts {
		isStray := func(key string) bool {
			home := binding.Partition([]byte(key), t.Spread)
			return home != n && t.has(home, key)
		}
		maps.DeleteFunc(p.last, func(key string, _ lastRecord) bool { return isStray(key) })
		maps.DeleteFunc(p.invalid, func(key string, _ record.Entry) bool { return isStray(key) })
	}
}

// addForeign adds the invalid records that are the last of their key in a partition to the foreign
// records. A key without an event needs no repair, because its object is published like any other.
func (t *Topic) addForeign(p *Partition) {
	for key, at := range p.invalid {
		before, known := t.entries[key]
		if last, read := p.last[key]; read {
			before, known = last.entry, last.entry != none
		} else if known {
			known = before.Partition == p.number && !t.isLost(key, before)
		}
		if known && before.Type == "" {
			before.Partition, before.Offset, before.Time, before.Foreign = at.Partition, at.Offset, at.Time, true
			t.foreign[key] = before
			p.unread = lower(p.unread, at.Offset)
		}
	}
}

// lower returns the lower of two offsets, where 0 means no offset.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// Update updates the entries of the topic, and writes the missing records to the checkpoint topic. A
// crash at any point leaves the checkpoint topic correct, for these reasons:
//
//   - If a partition lost records, Update first removes the previous writer's marker entry, which
//     vouches for the other entries. Until the session records its own marker at the end, a
//     takeover reads the partition from its start.
//   - The marker entry says where the first foreign record is, because each takeover must find that
//     record until it is answered.
//   - The marker entry also says where the read began if a key has several events. Only the
//     last of these events gets an entry. If the log loses that event after a crash, the next
//     takeover must find the one before it.
//   - Update writes the entries of a partition in the order of their offsets.
//   - A key whose last record is lost gets the entry of its earlier record, if any, in one step.
func (t *Topic) Update(write func(Write)) {
	for _, l := range t.restored {
		write(put(l.Key, l.Entry, t.records))
	}
	t.dropStrays()
	for n, p := range t.parts {
		t.addForeign(p)
		first := p.unread
		if p.repeats {
			first = p.from
		}
		switch former := p.former; {
		case former.Key == "":
		case !p.trusted:
			write(forget(former.Key, n, t.records))
		case lower(first, former.Unread) != former.Unread:
			former.Unread = lower(first, former.Unread)
			write(put(former.Key, former.Entry, t.records))
		}
	}
	for _, p := range t.parts {
		t.updateEntries(p, write)
	}
	var lost []string
	for key, e := range t.entries {
		if t.isLost(key, e) {
			lost = append(lost, key)
		}
	}
	slices.Sort(lost)
	for _, key := range lost {
		write(forget(key, t.entries[key].Partition, t.records))
		delete(t.entries, key)
	}
	for _, p := range t.parts {
		for key, last := range p.last {
			if last.entry == none {
				delete(t.entries, key)
			} else {
				t.entries[key] = last.entry
			}
		}
	}
	write(stateOf(t.name, t.Spread, t.records))
}

// updateEntries writes the changed entries of a partition.
func (t *Topic) updateEntries(p *Partition, write func(Write)) {
	byOffset := func(x, y string) int { return cmp.Compare(p.last[x].offset, p.last[y].offset) }
	for _, key := range slices.SortedFunc(maps.Keys(p.last), byOffset) {
		was, is := t.entries[key], p.last[key].entry
		switch is {
		case was: // already recorded, or the purge of a key without an entry
		case none:
			write(forget(key, p.number, t.records))
		default:
			write(put(key, is, t.records))
			if was != none && Home(was.Partition, t.records) != Home(p.number, t.records) {
				write(forget(key, was.Partition, t.records))
			}
		}
	}
}
