package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// recovery finds out what one event topic holds, after the session wrote its markers.
type recovery struct {
	t     *topic
	state topicState
	// entries has the checkpoint entries of the topic by partition key. recoverTopics
	// replaces them with what the topic holds.
	entries     map[string]entry
	erased      map[string]erasedEntry // entries that were removed from the checkpoint topic, see restoreErased
	lastMarkers []keyedEntry           // markers of the previous writer, by partition; not in entries
	highest     []keyedEntry           // entries with the highest offset, by partition
	start       []int64                // first offset of each partition
	tails       []tail                 // by partition
}

// keyedEntry is a checkpoint entry with its key. The key is "" for none.
type keyedEntry struct {
	key string
	entry
}

// at returns the offset, -1 for none.
func (r keyedEntry) at() int64 {
	if r.key == "" {
		return -1
	}
	return r.Offset
}

// tail is the content of a partition from an offset to the session's marker.
type tail struct {
	trusted bool // the checkpoint entries of the partition are correct
	last    map[string]lastRecord
	invalid map[string]entry // only the place: the last record of a key, if it is invalid
}

// lastRecord is the last record of a key; its entry is zero if the key has no event any more.
type lastRecord struct {
	offset int64
	entry  entry
}

// recoverTopics finds out what topics hold and updates the checkpoint topic: entries that
// are correct stay, and the events after them are added. The caller opens the topics.
func (s *session) recoverTopics(ctx context.Context, all []*recovery) error {
	err := each(ctx, len(all), func(ctx context.Context, i int) error { return s.measure(ctx, all[i]) })
	if err != nil {
		return err
	}
	of, topics := map[*topic]*recovery{}, make([]*topic, len(all))
	for i, a := range all {
		of[a.t], topics[i] = a, a.t
	}
	places := placesIn(topics)
	err = each(ctx, len(places), func(ctx context.Context, i int) (err error) {
		a, p := of[places[i].t], places[i].p
		if a.tails[p], err = s.catchUp(ctx, a, p); err != nil {
			return fmt.Errorf("read topic %q: %w", a.t.name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, a := range all {
		s.setSpread(a)
		if err := s.restoreErased(ctx, a); err != nil {
			return err
		}
		s.updateCheckpoint(a)
	}
	return s.flush(ctx)
}

// measure reads the bounds of a topic's partitions, and finds the highest entry and the
// last marker of each.
func (s *session) measure(ctx context.Context, a *recovery) error {
	offsets, err := s.b.client.Offsets(ctx, a.t.name)
	if err != nil {
		return err
	}
	n := len(a.t.senders)
	if a.entries == nil {
		a.entries = map[string]entry{}
	}
	a.start, a.lastMarkers, a.highest, a.tails = offsets.Start[:n], make([]keyedEntry, n), make([]keyedEntry, n), make([]tail, n)
	for key, e := range a.entries {
		if e.Partition < n {
			a.t.senders[e.Partition].notBefore(time.Unix(e.Time+1, 0)) // its milliseconds are unknown
		}
		switch {
		case e.Partition >= n:
		case e.Type == event.WriterStarted:
			a.lastMarkers[e.Partition] = keyedEntry{key, e}
			delete(a.entries, key)
		case a.highest[e.Partition].at() < e.Offset:
			a.highest[e.Partition] = keyedEntry{key, e}
		}
	}
	return nil
}

// catchUp reads a partition from its highest entry to the session's marker. It reads the
// whole partition if the entries do not match it.
func (s *session) catchUp(ctx context.Context, a *recovery, p int) (tail, error) {
	from, compacted, err := s.watermark(ctx, a, p)
	if err != nil {
		return tail{}, err
	}
	c, err := s.readLast(ctx, a, p, from)
	if err != nil {
		return tail{}, err
	}
	if from > 0 && (!compacted || c.follows(a.highest[p])) {
		c.trusted = true
		return c, nil
	}
	switch {
	case a.lastMarkers[p].key != "":
		s.b.log.Warn("partition does not match the checkpoint because it was recreated or the brokers lost records; reading it from the start", "topic", a.t.name, "partition", p)
	case a.highest[p].key != "":
		s.b.log.Info("the checkpoint has no marker for the partition, because of an upgrade, an interrupted takeover, data loss, or an invalid record; reading the partition from the start", "topic", a.t.name, "partition", p)
	}
	if from > 0 {
		c, err = s.readLast(ctx, a, p, 0)
	}
	return c, err
}

// follows reports whether the tail has a later record of the key.
func (c tail) follows(r keyedEntry) bool {
	valid, isValid := c.last[r.key]
	invalid, isInvalid := c.invalid[r.key]
	return isValid && valid.offset > r.Offset || isInvalid && invalid.Offset > r.Offset
}

// watermark returns the offset below which everything in a partition is recorded, 0 if its
// entries are not trusted.
//
// The entries of an event partition are in one partition of the checkpoint topic, and the
// entry of the writer's marker comes after those of everything before the marker (see
// [recorder]). So if the checkpoint partition lost its end, it still has every entry up to
// the highest offset that it holds.
//
// Brokers also lose the end of an event log: if an out-of-sync replica becomes leader,
// after a power loss, or if a disk is restored from a copy. Another writer may have written
// there since. So watermark checks two records: the marker of the previous writer, and the
// record with the highest recorded offset if it comes after the marker. If both are still
// the records in the checkpoint, nothing below them is lost, because the brokers reject a
// writer that continues after a loss, unless they lost its marker too. Compaction can
// remove the marker. It can also remove the other record, but only if a later record has
// the same key. Then compacted is true, and the caller checks that a later record exists.
func (s *session) watermark(ctx context.Context, a *recovery, p int) (from int64, compacted bool, err error) {
	former, top := a.lastMarkers[p], a.highest[p]
	if former.key == "" || max(former.Offset, top.at()) >= a.t.markers[p].Offset {
		return 0, false, nil
	}
	if former.Offset >= a.start[p] {
		found, is, err := s.b.holds(ctx, former)
		switch {
		case err != nil, found && !is:
			return 0, false, err
		case is && top.at() < former.Offset:
			return former.readUpTo(former.Offset + 1), false, nil
		}
	}
	if top.at() < a.start[p] {
		return 0, false, nil
	}
	found, is, err := s.b.holds(ctx, top)
	if err != nil || found && !is {
		return 0, false, err
	}
	return former.readUpTo(top.Offset + 1), !found, nil
}

// readUpTo returns the offset up to which the writer of a marker has read a partition, given the
// offset up to which it has recorded its own events.
func (r keyedEntry) readUpTo(recorded int64) int64 {
	if r.Unread == 0 {
		return recorded
	}
	return min(recorded, r.Unread)
}

// holds reports whether the log has a record at the offset of an entry, and whether it is
// the record of that entry.
func (b *Bus) holds(ctx context.Context, of keyedEntry) (found, is bool, err error) {
	r, found, err := b.readOne(ctx, of.Topic, of.Partition, of.Offset)
	return found, err == nil && found && b.isRecordOf(r, of), err
}

// isRecordOf reports whether a record is the one that an entry describes.
func (b *Bus) isRecordOf(r broker.Record, of keyedEntry) bool {
	if string(r.Key) != of.key {
		return false
	}
	e, ok := b.entryOf(r, of.Topic, of.Partition)
	return ok && e.IsSameEvent(of.entry)
}

// readLast reads a partition from an offset to the session's marker. It returns the last
// valid record of each key, and the invalid record after it, if any. A tombstone directly
// after the state of an existing object is invalid too, because a forwarder writes a
// tombstone only after a removal.
func (s *session) readLast(ctx context.Context, a *recovery, p int, from int64) (tail, error) {
	t, c := a.t, tail{last: map[string]lastRecord{}, invalid: map[string]entry{}}
	err := s.b.readCounted(ctx, s.b.opts.Takeover, t.name, p, from, t.markers[p].Offset, func(r broker.Record) error {
		if !s.b.parser.Owns(r.Key) {
			return nil
		}
		t.senders[p].notBefore(r.Time)
		key := string(r.Key)
		before := a.recordedIn(p, key)
		if last, read := c.last[key]; read {
			before = last.entry
		}
		switch e, ok := s.b.entryOf(r, t.name, p); {
		case !ok, e == (entry{}) && isState(before):
			c.invalid[key] = entry{Partition: p, Offset: r.Offset, Time: r.Time.Unix()}
		case e.Type != event.WriterStarted:
			c.last[key] = lastRecord{r.Offset, e}
			delete(c.invalid, key)
		}
		return nil
	})
	return c, err
}

// addForeign adds the invalid records of a partition that are the last of an object to the
// foreign records, each with the last event before it. It returns the lowest offset of
// these records, 0 for none. A key without an event needs no repair: its object is
// published like any other.
func (s *session) addForeign(a *recovery, p int) (first int64) {
	found := map[string]foreignRecord{}
	for key, at := range a.tails[p].invalid {
		before, known := a.entries[key]
		if last, read := a.tails[p].last[key]; read {
			before, known = last.entry, last.entry != (entry{})
		} else if known {
			known = before.Partition == p && !a.isLost(key, before)
		}
		if known && before.Type == "" {
			before.Partition, before.Offset, before.Time, before.Foreign = at.Partition, at.Offset, at.Time, true
			found[key] = foreignRecord{entry: before}
			first = lower(first, at.Offset)
		}
	}
	s.b.foreign.add(found)
	return first
}

// updateCheckpoint updates the entries of a topic, in memory and in the checkpoint topic,
// such that a crash at any point leaves the checkpoint topic correct. If a partition lost
// records, it first removes the entry of the previous writer's marker, which vouches for
// the other entries. From then on, until the session's own marker is recorded last, a
// takeover reads the partition from its start. The entry of a marker says where a foreign
// record is: until the record is answered, each takeover must find it. The entries of a
// partition are written in the order of their offsets. A key whose last record is lost gets
// the entry of its earlier record, if there is one, in one step.
func (s *session) updateCheckpoint(a *recovery) {
	a.dropStrays()
	unread := make([]int64, len(a.tails))
	for p, former := range a.lastMarkers {
		unread[p] = s.addForeign(a, p)
		switch {
		case former.key == "":
		case !a.tails[p].trusted:
			s.recorder.forget([]byte(former.key), p)
		case former.Unread == 0 && unread[p] != 0:
			former.Unread = unread[p]
			s.recorder.put([]byte(former.key), former.entry)
		}
	}
	for p, c := range a.tails {
		for _, key := range slices.SortedFunc(maps.Keys(c.last), func(x, y string) int { return cmp.Compare(c.last[x].offset, c.last[y].offset) }) {
			was, is := a.entries[key], c.last[key].entry
			if is == was { // already recorded, or the purge of a key without an entry
				continue
			}
			if is == (entry{}) {
				s.recorder.forget([]byte(key), p)
				continue
			}
			s.recorder.put([]byte(key), is)
			if was != (entry{}) && s.recorder.home(was.Partition) != s.recorder.home(p) {
				s.recorder.forget([]byte(key), was.Partition)
			}
		}
	}
	for key, e := range a.entries {
		if a.isLost(key, e) {
			delete(a.entries, key)
			s.recorder.forget([]byte(key), e.Partition)
		}
	}
	for _, c := range a.tails {
		for key, last := range c.last {
			if last.entry == (entry{}) {
				delete(a.entries, key)
			} else {
				a.entries[key] = last.entry
			}
		}
	}
	s.recordState(a.t)
	for p, sender := range a.t.senders {
		sender.mu.Lock()
		sender.markedUnread = unread[p]
		s.recordMarker(a.t, p, unread[p])
		sender.mu.Unlock()
	}
}

// recordMarker records the session's marker of an event partition.
func (s *session) recordMarker(t *topic, p int, unread int64) {
	marker := t.markers[p]
	marker.Unread = unread
	s.recorder.put([]byte(s.markerKey(t.name, p)), marker)
}

// isLost reports whether the topic no longer holds any record of a recorded key. A claim
// without a value is not lost if compaction can have removed it: its entry has the owner.
func (a *recovery) isLost(key string, e entry) bool {
	if e.Type == event.ClusterClaimed && e.NoValue && e.Partition < len(a.t.markers) && e.Offset < a.t.markers[e.Partition].Offset {
		return false
	}
	for _, c := range a.tails {
		if _, found := c.last[key]; found {
			return false
		}
	}
	return !a.holds(e)
}
