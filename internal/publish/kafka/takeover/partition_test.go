package takeover

import (
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

// eventAt returns the entry of an event in partition 0 of topic t.
func eventAt(offset int64) record.Entry {
	return record.Entry{UID: "u", ResourceVersion: "1", Topic: "t", Offset: offset}
}

func markerAt(offset int64, id string) record.Entry {
	return record.Entry{Type: event.WriterStarted, ID: id, Topic: "t", Offset: offset}
}

func recordOf(key string, e record.Entry) Record {
	return Record{Offset: e.Offset, Key: key, Entry: e, Valid: true}
}

const writerKey = "c/_control/writer/t/0"

// begin returns a topic with one partition and the given entries in the checkpoint topic. The
// session's marker is at offset 20.
func begin(start int64, entries map[string]record.Entry) (*Topic, *Partition) {
	c := NewCheckpoint(1)
	offset := int64(0)
	for key, e := range entries {
		c.Read(0, offset, key, record.Checkpoint{Kind: record.OfEvent, Entry: e})
		offset++
	}
	c.Finish()
	t := c.Take("t", 1)
	p := t.Begin(0, start, markerAt(20, "session"))
	return t, p
}

// TestWhatIsRead verifies that a partition is read from its start unless two records of the log
// confirm the checkpoint.
func TestWhatIsRead(t *testing.T) {
	const web = "c/core/pods/n/web"
	marker, last := markerAt(4, "former"), eventAt(9)
	unread := marker
	unread.Unread = 6
	atMarker, atLast := Read{From: 4, To: 5, Key: writerKey}, Read{From: 9, To: 10, Key: web}
	for name, c := range map[string]struct {
		marker, last record.Entry // the recorded entries; none if not recorded
		start        int64
		log          []Record
		want         []Read
	}{
		"nothing is recorded":                                 {want: []Read{{To: 20}}},
		"no marker is recorded":                               {last: last, want: []Read{{To: 20, Reason: NoMarker}}},
		"both match":                                          {marker, last, 0, []Record{recordOf(writerKey, marker), recordOf(web, last)}, []Read{atMarker, atLast, {From: 10, To: 20}}},
		"no event follows the marker":                         {marker, none, 0, []Record{recordOf(writerKey, marker)}, []Read{atMarker, {From: 5, To: 20}}},
		"a foreign record is unread":                          {unread, last, 0, []Record{recordOf(writerKey, marker), recordOf(web, last)}, []Read{atMarker, atLast, {From: 6, To: 20}}},
		"another record at the marker":                        {marker, last, 0, []Record{{Offset: 4}, recordOf(web, last)}, []Read{atMarker, {To: 20, Reason: Mismatch}}},
		"another marker at the marker":                        {marker, last, 0, []Record{recordOf(writerKey, markerAt(4, "x")), recordOf(web, last)}, []Read{atMarker, {To: 20, Reason: Mismatch}}},
		"the marker is compacted":                             {marker, last, 0, []Record{recordOf(web, last)}, []Read{atMarker, atLast, {From: 10, To: 20}}},
		"the marker is before the log":                        {marker, last, 5, []Record{recordOf(web, last)}, []Read{atLast, {From: 10, To: 20}}},
		"all is before the log":                               {marker, last, 10, nil, []Read{{To: 20, Reason: Mismatch}}},
		"another record at the event":                         {marker, last, 0, []Record{recordOf(writerKey, marker), {Offset: 9}}, []Read{atMarker, atLast, {To: 20, Reason: Mismatch}}},
		"the event is compacted":                              {marker, last, 0, []Record{recordOf(writerKey, marker), recordOf(web, eventAt(12))}, []Read{atMarker, atLast, {From: 10, To: 20}}},
		"the event is compacted, foreign":                     {marker, last, 0, []Record{recordOf(writerKey, marker), {Offset: 12, Key: web}}, []Read{atMarker, atLast, {From: 10, To: 20}}},
		"the event is lost":                                   {marker, last, 0, []Record{recordOf(writerKey, marker)}, []Read{atMarker, atLast, {From: 10, To: 20}, {To: 20, Reason: Mismatch}}},
		"the event is lost after an unread record of its key": {unread, last, 0, []Record{recordOf(writerKey, marker), recordOf(web, eventAt(7))}, []Read{atMarker, atLast, {From: 6, To: 20}, {To: 20, Reason: Mismatch}}},
		"the log ended before the event":                      {marker, eventAt(20), 0, []Record{recordOf(writerKey, marker)}, []Read{{To: 20, Reason: Mismatch}}},
		"the log ended before the marker":                     {markerAt(20, "former"), last, 0, []Record{recordOf(web, last)}, []Read{{To: 20, Reason: Mismatch}}},
	} {
		t.Run(name, func(t *testing.T) {
			entries := map[string]record.Entry{}
			if c.marker != none {
				entries[writerKey] = c.marker
			}
			if c.last != none {
				entries[web] = c.last
			}
			_, p := begin(c.start, entries)
			var got []Read
			for read, more := p.Next(); more; read, more = p.Next() {
				got = append(got, read)
				give(p, read, c.log)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// give passes the records of a range to a partition.
func give(p *Partition, read Read, log []Record) {
	for _, r := range log {
		if r.Offset >= read.From && r.Offset < read.To {
			p.Read(r)
		}
	}
}

// TestATakeoverIsKilledBeforeTheLogLosesItsEnd verifies that a takeover finds an earlier event of a
// key after the log lost the last one. Only the last of several events of a key gets an entry. Here,
// a takeover is killed after it recorded an event between two events of one key, and then the log
// loses the later of the two. An earlier version treated the first event as recorded, and forgot the
// key.
func TestATakeoverIsKilledBeforeTheLogLosesItsEnd(t *testing.T) {
	const web, api = "c/core/pods/n/web", "c/core/pods/n/api"
	marker := markerAt(4, "former")
	log := []Record{recordOf(writerKey, marker), recordOf(web, eventAt(5)), recordOf(api, eventAt(6)), recordOf(web, eventAt(7))}
	known, p := begin(0, map[string]record.Entry{writerKey: marker})
	for read, more := p.Next(); more; read, more = p.Next() {
		give(p, read, log)
	}
	known.Lookups()
	stored := map[string]record.Entry{writerKey: marker}
	known.Update(func(w Write) {
		if w.Kind == record.OfEvent && stored[api] == none {
			stored[w.Key] = w.Entry
		}
	})
	if stored[api] == none || stored[web] != none {
		t.Fatalf("stored %+v, want the event at offset 6 and not that at offset 7", stored)
	}
	known, p = begin(0, stored)
	for read, more := p.Next(); more; read, more = p.Next() {
		give(p, read, log[:3])
	}
	known.Lookups()
	known.Update(func(Write) {})
	if got := known.Entries(); got[web] != eventAt(5) || got[api] != eventAt(6) {
		t.Errorf("the takeover knows %+v", got)
	}
}

// TestUseOf verifies that a recorded topic is never ignored, and that another user's topic is never
// written to.
func TestUseOf(t *testing.T) {
	for name, c := range map[string]struct {
		isRecorded bool
		visibility Visibility
		want       Use
	}{
		"recorded and visible":     {true, Ours, Take},
		"recorded and hidden":      {true, Hidden, SetAside},
		"recorded, no answer":      {true, Unknown, Fail},
		"recorded and not ours":    {true, NotOurs, Fail},
		"Kuberelay's":              {false, Ours, Take},
		"another user's, or empty": {false, NotOurs, Ignore},
		"not visible":              {false, Hidden, Ignore},
		"no answer":                {false, Unknown, Recheck},
	} {
		t.Run(name, func(t *testing.T) {
			if got := UseOf(c.isRecorded, c.visibility); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestSetAside verifies that the marker's entry, which vouches for the others, is removed first.
// Otherwise, a takeover that is killed in between would leave a partition that seems to be recorded.
func TestSetAside(t *testing.T) {
	c := NewCheckpoint(1)
	for offset, key := range []string{"c/core/pods/n/web", writerKey} {
		e := eventAt(9)
		if key == writerKey {
			e = markerAt(4, "former")
		}
		c.Read(0, int64(offset), key, record.Checkpoint{Kind: record.OfEvent, Entry: e})
	}
	c.Finish()
	var got []string
	c.SetAside(func(w Write) { got = append(got, w.Key) })
	if want := []string{"", writerKey, "c/core/pods/n/web"}; !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if !slices.Equal(slices.Collect(c.Topics()), nil) {
		t.Error("the topic is still recorded")
	}
}

// TestATombstoneUponAState verifies that a tombstone directly after the state of an object is
// foreign, and that the object stays known. No forwarder writes such a tombstone.
func TestATombstoneUponAState(t *testing.T) {
	const web = "c/core/pods/n/web"
	marker, last := markerAt(4, "former"), eventAt(9)
	known, p := begin(0, map[string]record.Entry{writerKey: marker, web: last})
	for read, more := p.Next(); more; read, more = p.Next() {
		give(p, read, []Record{recordOf(writerKey, marker), recordOf(web, last), {Offset: 12, Key: web, Valid: true}})
	}
	known.Lookups()
	known.Update(func(Write) {})
	if got := known.Entries()[web]; got != last {
		t.Errorf("the object is known as %+v", got)
	}
	if got := known.Foreign()[web]; got.Offset != 12 || !got.Foreign || known.Unread(0) != 12 {
		t.Errorf("the foreign record is %+v, unread from %d", got, known.Unread(0))
	}
}

// TestALossIsRecordedFirst verifies that Update removes the entry of the marker, which vouches for
// the other entries, before it writes anything else.
func TestALossIsRecordedFirst(t *testing.T) {
	const web = "c/core/pods/n/web"
	known, p := begin(0, map[string]record.Entry{writerKey: markerAt(4, "former"), web: eventAt(9)})
	for read, more := p.Next(); more; read, more = p.Next() {
		give(p, read, []Record{recordOf(writerKey, markerAt(4, "another")), recordOf(web, eventAt(6))})
	}
	known.Lookups()
	var got []Write
	known.Update(func(w Write) { got = append(got, w) })
	if len(got) != 3 || got[0] != forget(writerKey, 0, 1) || got[1] != put(web, eventAt(6), 1) {
		t.Errorf("wrote %+v", got)
	}
}
