package takeover

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// world is a model of a cluster's topics, of writers that take over and are killed, and of the
// actions of brokers and other users on these topics. A random source makes every choice.
type world struct {
	*rand.Rand
	story      []string
	topics     map[string][]eventLog
	checkpoint [][]Write // by partition; the offset is the index, and the Key "-" marks a removed record
	hidden     map[string]bool
	purged     map[string]int64 // the last offset of a purged removal, by key
	// hostile means that entries are erased. Then no event topic loses its end and the checkpoint
	// topic is not compacted, because both would remove the trace of an erased entry.
	hostile bool
	writer  *writer
	version int
}

// eventLog is one partition of an event topic. The offset is the index.
type eventLog []logged

type logged struct {
	Record
	removed bool // removed by compaction
	batched bool // in the same batch as the record before
}

// writer is a session after its takeover.
type writer struct {
	records  int
	markers  map[string][]record.Entry // by topic and partition
	read     map[string][]int64        // the offset up to which each partition was read or written
	unread   map[string][]int64
	newest   map[string][]int64
	entries  map[string]map[string]record.Entry
	unstored [][]Write // by partition of the checkpoint topic
}

const modelCluster = "c"

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), topics: map[string][]eventLog{}, hidden: map[string]bool{}, purged: map[string]int64{}}
	w.hostile = w.IntN(2) == 0
	w.checkpoint = make([][]Write, 1+w.IntN(3))
	for _, name := range []string{"a", "b"} {
		w.topics[name] = make([]eventLog, 1+w.IntN(3))
	}
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func keyOf(topic string, n int) string {
	return event.PartitionKey(modelCluster, event.Key{Resource: topic, Namespace: "n", Name: fmt.Sprint("p", n)})
}

// append appends the records of one batch to a partition, and returns the offset of the first.
func (w *world) append(topic string, partition int, batch ...Record) int64 {
	log := w.topics[topic][partition]
	base := int64(len(log))
	for n, r := range batch {
		r.Offset = base + int64(n)
		if r.Entry != none {
			r.Entry.Topic, r.Entry.Partition, r.Entry.Offset = topic, partition, base
		}
		log = append(log, logged{Record: r, batched: n > 0})
	}
	w.topics[topic][partition] = log
	return base
}

// place returns a random topic in use, a random key of that topic, and the key's partition.
func (w *world) place() (topic, key string, partition int) {
	names := slices.Sorted(maps.Keys(w.topics))
	if w.writer != nil {
		names = slices.Sorted(maps.Keys(w.writer.markers))
	}
	if len(names) == 0 {
		return "", "", 0
	}
	topic = names[w.IntN(len(names))]
	key = keyOf(topic, w.IntN(6))
	return topic, key, binding.Partition([]byte(key), len(w.topics[topic]))
}

func (w *world) event(deleted bool) record.Entry {
	w.version++
	return record.Entry{UID: "u", ResourceVersion: fmt.Sprint(w.version), Deleted: deleted}
}

// publish publishes an event or a removal of a key, as a session does.
func (w *world) publish() {
	topic, key, p := w.place()
	if topic == "" {
		return
	}
	s := w.writer
	last, known := s.entries[topic][key]
	e := w.event(known && !last.Deleted && w.IntN(3) == 0)
	batch := []Record{{Key: key, Entry: e, Valid: true}}
	if e.Deleted {
		batch = append(batch, batch[0])
	}
	base := w.append(topic, p, batch...)
	if at := s.read[topic][p]; base > at && s.unread[topic][p] == 0 {
		s.unread[topic][p] = at
		s.recordMarker(topic, p)
	}
	s.read[topic][p], s.newest[topic][p] = base+int64(len(batch)), base
	e.Topic, e.Partition, e.Offset = topic, p, base
	s.entries[topic][key] = e
	s.write(put(key, e, s.records))
	w.tell("publish %s in %s/%d at %d, deleted %t", key, topic, p, base, e.Deleted)
}

func (s *writer) write(r Write) { s.unstored[r.Partition] = append(s.unstored[r.Partition], r) }

func (s *writer) recordMarker(topic string, p int) {
	marker := s.markers[topic][p]
	marker.Unread = s.unread[topic][p]
	s.write(put(event.WriterPartitionKey(modelCluster, topic, p), marker, s.records))
}

// purge removes the entry of a deleted key, unless that event is the newest of its partition.
func (w *world) purge() {
	topic, key, p := w.place()
	if topic == "" {
		return
	}
	if e := w.writer.entries[topic][key]; e.Deleted && e.Offset != w.writer.newest[topic][p] {
		delete(w.writer.entries[topic], key)
		w.purged[key] = e.Offset
		w.writer.write(forget(key, p, w.writer.records))
		w.tell("purge %s of %s", key, topic)
	}
}

// store stores some or all of the writes that the writer has made.
func (w *world) store(all bool) {
	for home, unstored := range w.writer.unstored {
		n := len(unstored)
		if !all {
			n = w.IntN(n + 1)
		}
		w.checkpoint[home] = append(w.checkpoint[home], unstored[:n]...)
		w.writer.unstored[home] = unstored[n:]
	}
}

// crash kills the writer. Only some of its writes are stored.
func (w *world) crash() {
	w.store(false)
	w.writer = nil
	w.tell("the writer is killed")
}

// intrude appends another user's record.
func (w *world) intrude() {
	topic, key, p := w.place()
	if topic == "" {
		return
	}
	r := Record{Key: key, Entry: w.event(false), Valid: true}
	switch w.IntN(3) {
	case 0:
		r = Record{}
	case 1:
		r = Record{Key: key}
	}
	w.tell("another user writes %q, valid %t, to %s/%d at %d", r.Key, r.Valid, topic, p, w.append(topic, p, r))
}

// disturb changes the topics while no writer runs.
func (w *world) disturb() {
	topic, key, p := w.place()
	log, home := w.topics[topic][p], w.IntN(len(w.checkpoint))
	entries := w.checkpoint[home]
	switch w.IntN(9) {
	case 0:
		if w.hostile {
			break
		}
		end := w.IntN(len(log) + 1)
		for end > 0 && end < len(log) && log[end].batched {
			end--
		}
		w.topics[topic][p] = log[:end]
		w.tell("%s/%d loses its end from %d", topic, p, end)
	case 1:
		w.checkpoint[home] = entries[:w.IntN(len(entries)+1)]
		w.tell("the checkpoint topic loses the end of %d from %d", home, len(w.checkpoint[home]))
	case 2:
		w.compact(log)
		w.tell("%s/%d is compacted", topic, p)
	case 3:
		w.expire(log)
		w.tell("markers and tombstones of %s/%d expire", topic, p)
	case 4:
		if !w.hostile {
			compactCheckpoint(entries)
			w.tell("the checkpoint topic is compacted")
		}
	case 5:
		for n := range w.topics[topic] {
			w.topics[topic][n] = nil
		}
		w.tell("%s is recreated", topic)
	case 6:
		w.hidden[topic] = !w.hidden[topic]
		w.tell("%s is hidden: %t", topic, w.hidden[topic])
	case 7:
		if w.hostile {
			w.erase(topic, key, p)
		}
	default:
		w.intrude()
	}
}

// compact picks an offset and compacts the log below it: it removes each record that is followed,
// below that offset, by a valid record with the same key.
func (w *world) compact(log eventLog) {
	end := w.IntN(len(log) + 1)
	for n := range end {
		isLater := func(r logged) bool { return r.Key == log[n].Key && r.Valid && !r.removed }
		if log[n].Key != "" && slices.ContainsFunc(log[n+1:end], isLater) {
			log[n].removed = true
		}
	}
}

// expire removes some markers and tombstones that have no earlier record with the same key.
func (w *world) expire(log eventLog) {
	for n := range log[:max(0, len(log)-1)] {
		isEarlier := func(r logged) bool { return r.Key == log[n].Key && !r.removed }
		if r := &log[n]; (isWriterMarker(r.Entry) || r.batched) && !slices.ContainsFunc(log[:n], isEarlier) && w.IntN(2) == 0 {
			r.removed = true
		}
	}
}

func compactCheckpoint(entries []Write) {
	for n, e := range entries {
		isLater := func(r Write) bool { return r.Key == e.Key && r.State.Topic == e.State.Topic }
		if slices.ContainsFunc(entries[n+1:], isLater) {
			entries[n].Key = "-"
		}
	}
}

// erase forges a tombstone for the entry of an existing object.
func (w *world) erase(topic, key string, p int) {
	for home, entries := range w.checkpoint {
		var last record.Entry
		for _, r := range entries {
			if r.Key == key {
				last = r.Entry
			}
		}
		if isState(last) && last.Topic == topic && last.Partition == p {
			w.checkpoint[home] = append(entries, Write{home, key, record.Checkpoint{Kind: record.Removed}})
			w.tell("the entry of %s in %s is erased", key, topic)
		}
	}
}

// takeOver runs a takeover, which may be killed. It returns an error if the result is wrong.
func (w *world) takeOver() error {
	c := NewCheckpoint(len(w.checkpoint))
	for home, entries := range w.checkpoint {
		for offset, r := range entries {
			if r.Key != "-" {
				c.Read(home, int64(offset), r.Key, r.Checkpoint)
			}
		}
	}
	c.Finish()
	s := &writer{
		records: c.Records, markers: map[string][]record.Entry{}, read: map[string][]int64{}, unread: map[string][]int64{},
		newest: map[string][]int64{}, entries: map[string]map[string]record.Entry{}, unstored: make([][]Write, len(w.checkpoint)),
	}
	taken := map[string]*Topic{}
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		sight := Ours
		if w.hidden[name] {
			sight = Hidden
		}
		if UseOf(c.IsRecorded(name), sight) != Take {
			continue
		}
		taken[name] = c.Take(name, len(w.topics[name]))
		for p := range w.topics[name] {
			if w.IntN(20) == 0 {
				w.tell("a takeover is killed before it writes its marker to %s/%d", name, p)
				return nil
			}
			marker := record.Entry{Type: event.WriterStarted, ID: fmt.Sprint("marker-", len(w.story), "-", name, p), NoValue: true, Topic: name, Partition: p}
			marker.Offset = w.append(name, p, Record{Key: event.WriterPartitionKey(modelCluster, name, p), Entry: marker, Valid: true})
			s.markers[name] = append(s.markers[name], marker)
		}
	}
	c.SetAside(s.write)
	w.writer = s
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		w.recover(name, taken[name])
	}
	w.tell("a takeover of %v", slices.Sorted(maps.Keys(taken)))
	if w.IntN(4) == 0 {
		w.crash()
	} else {
		w.store(true)
	}
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		if err := w.check(name, taken[name]); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) recover(name string, t *Topic) {
	s := w.writer
	for p, log := range w.topics[name] {
		part := t.Begin(p, 0, s.markers[name][p])
		for read, more := part.Next(); more; read, more = part.Next() {
			for _, r := range log[min(read.From, int64(len(log))):min(read.To, int64(len(log)))] {
				if r.removed {
					continue
				}
				if read.Key != "" && r.Key != read.Key {
					r.Record = Record{Offset: r.Offset}
				}
				part.Read(r.Record)
			}
		}
	}
	lookups, _ := t.Lookups()
	for _, l := range lookups {
		if log := w.topics[name][l.Partition]; l.Offset < int64(len(log)) && !log[l.Offset].removed && l.Is(log[l.Offset].Record) {
			t.Restore(l)
		}
	}
	t.Update(s.write)
	s.entries[name] = maps.Clone(t.Entries())
	for p, marker := range s.markers[name] {
		s.read[name], s.newest[name] = append(s.read[name], marker.Offset+1), append(s.newest[name], -1)
		s.unread[name] = append(s.unread[name], t.Unread(p))
		s.recordMarker(name, p)
	}
}

// check compares the result of a takeover for one topic with the logs.
func (w *world) check(name string, t *Topic) error {
	last, invalid := map[string]record.Entry{}, map[string]int64{}
	for _, log := range w.topics[name] {
		for _, r := range log {
			switch {
			case r.removed, r.Key == "", isWriterMarker(r.Entry):
			case r.Valid:
				last[r.Key] = r.Entry
				delete(invalid, r.Key)
			default:
				invalid[r.Key] = r.Offset
			}
		}
	}
	for key, e := range last {
		got, known := t.Entries()[key]
		if at, purged := w.purged[key]; purged && !known && e.Deleted && at == e.Offset {
			continue
		}
		if !known || got.Position() != e.Position() || !got.IsSameEvent(e) {
			return fmt.Errorf("the last event of %s in topic %s is %+v, and the takeover knows %+v", key, name, e, got)
		}
		if at, is := invalid[key]; is && t.Foreign()[key].Offset != at {
			return fmt.Errorf("the foreign record of %s at offset %d of topic %s is not known", key, at, name)
		}
	}
	for key, e := range t.Entries() {
		log := w.topics[name][e.Partition]
		isCompacted := e.Offset < int64(len(log)) && log[e.Offset].removed && log[e.Offset].Key == key // the later record was lost
		if _, stored := last[key]; !stored && !e.Deleted && !isCompacted {
			return fmt.Errorf("topic %s has no event of %s, and the takeover knows %+v", name, key, e)
		}
	}
	return nil
}

// TestRandomHistories verifies that a takeover knows the last event of every key in the log, and no
// state that is not in it. This holds whatever happens to the topics between two writers and to the
// takeovers themselves.
func TestRandomHistories(t *testing.T) {
	const histories, steps = 1000, 60
	for seed := range uint64(histories) {
		w := newWorld(seed)
		for range steps {
			var err error
			switch n := w.IntN(10); {
			case w.writer == nil && n < 5:
				w.disturb()
			case w.writer == nil:
				err = w.takeOver()
			case n == 0:
				w.crash()
			case n == 1:
				w.intrude()
			case n == 2:
				w.purge()
			case n == 3:
				w.store(false)
			default:
				w.publish()
			}
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.story, "\n"))
			}
		}
	}
}
