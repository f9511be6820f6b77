package reload

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
)

func TestVerdict(t *testing.T) {
	// The session wrote its marker at offset 3 and its last record at offset 8 of a log from 0 to 9.
	marker := record.Entry{Type: event.WriterStarted, Offset: 3, NoValue: true}
	withValue := marker
	withValue.NoValue = false
	for name, c := range map[string]struct {
		log  Log
		want Verdict
	}{
		"nothing is read yet":                  {Log{End: 9, Next: 9, Marker: marker}, ReadLast},
		"the log lost its end":                 {Log{End: 8, Next: 9, Marker: marker}, Shortened},
		"a shorter log without records":        {Log{Start: 8, End: 8, Next: 9, Marker: marker}, Shortened},
		"the records were deleted":             {Log{Start: 9, End: 9, Next: 9, Marker: marker}, Intact},
		"the last record is in its place":      {Log{End: 9, Next: 9, Marker: marker, Last: Expected}, ReadMarker},
		"another record is there":              {Log{End: 9, Next: 9, Marker: marker, Last: Other}, Replaced},
		"another, though compaction may run":   {Log{End: 9, Next: 9, Marker: marker, Last: Other, Replaceable: true}, Replaced},
		"the last record is gone":              {Log{End: 9, Next: 9, Marker: marker, Last: Missing}, Replaced},
		"compaction may have removed it":       {Log{End: 9, Next: 9, Marker: marker, Last: Missing, Replaceable: true}, ReadMarker},
		"the marker was deleted with its time": {Log{Start: 4, End: 9, Next: 9, Marker: marker, Last: Expected}, Intact},
		"both are in their places":             {Log{End: 9, Next: 9, Marker: marker, Last: Expected, AtMarker: Expected}, Intact},
		"compaction removed the marker":        {Log{End: 9, Next: 9, Marker: marker, Last: Expected, AtMarker: Missing}, Compacted},
		"a marker with a value is gone":        {Log{End: 9, Next: 9, Marker: withValue, Last: Expected, AtMarker: Missing}, Recreated},
		"another record is at the marker":      {Log{End: 9, Next: 9, Marker: marker, Last: Expected, AtMarker: Other}, Recreated},
	} {
		if got := c.log.Verdict(); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestTake(t *testing.T) {
	open := Bounds{"t": {5, 0}}
	at := func(partition int, offset int64) record.Entry {
		return record.Entry{UID: "A", Topic: "t", Partition: partition, Offset: offset}
	}
	elsewhere := at(0, 7)
	elsewhere.Topic = "deleted"
	for name, c := range map[string]struct {
		bounds Bounds
		entry  record.Entry
		last   uint64
		want   Outcome
		at     uint64 // the position that is yielded
	}{
		"an event":                           {open, at(0, 7), 0, Yield, publish.PositionOf(0, 7)},
		"an event before the last one":       {open, at(0, 7), publish.PositionOf(0, 9), Yield, publish.PositionOf(0, 7)},
		"an event after the last one":        {open, at(0, 9), publish.PositionOf(0, 7), Yield, publish.PositionOf(0, 7)},
		"an event in another partition":      {open, at(0, 7), publish.PositionOf(1, 3), Yield, publish.PositionOf(1, 3)},
		"a marker":                           {open, record.Entry{Type: event.WriterStarted, Topic: "t"}, 0, Skip, 0},
		"removed":                            {open, record.Entry{}, 0, Yield, 0},
		"removed, and recorded elsewhere":    {open, record.Entry{}, publish.PositionOf(1, 3), Skip, 0},
		"below the start of the log":         {open, at(0, 4), publish.PositionOf(0, 4), Lost, 0},
		"in a partition that does not exist": {open, at(2, 7), 0, Lost, 0},
		"in a topic that is not open":        {open, elsewhere, 0, Yield, 0},
		"in a topic that opened since":       {open, elsewhere, publish.PositionOf(0, 7), Skip, 0},
		"found by the takeover":              {nil, elsewhere, 0, Yield, publish.PositionOf(0, 7)},
	} {
		acked, got := c.bounds.Take(c.entry, c.last)
		if got != c.want || acked.Position != c.at || (c.at == 0 && acked != event.Acked{}) {
			t.Errorf("%s: got %d with %+v, want %d at %d", name, got, acked, c.want, c.at)
		}
	}
}

func TestDoubts(t *testing.T) {
	const key = "c/core/pods/default/web"
	entry := func(partition int, offset int64) record.Entry {
		return record.Entry{UID: "A", ResourceVersion: "1", Topic: "t", Partition: partition, Offset: offset}
	}
	of := func(e record.Entry) record.Checkpoint { return record.Checkpoint{Kind: record.OfEvent, Entry: e} }
	other := entry(0, 7)
	other.Topic = "unknown"
	home := publish.PositionOf(2, 7) // recorded in partition 0 of 2
	for name, c := range map[string]struct {
		record    record.Checkpoint
		isForeign bool
		last      uint64
		want      bool // taken, not in doubt
	}{
		"of the session":                   {record: of(entry(2, 7)), last: home, want: true},
		"of another writer":                {record: of(entry(2, 7)), isForeign: true, last: home},
		"of an object without an event":    {record: of(entry(2, 7))},
		"of an event recorded elsewhere":   {record: of(entry(1, 7)), last: publish.PositionOf(1, 7)},
		"of a topic that is not open":      {record: of(other), want: true},
		"a marker":                         {record: of(record.Entry{Type: event.WriterStarted, Topic: "t"}), want: true},
		"removed":                          {record: record.Checkpoint{Kind: record.Removed}, want: true},
		"removed by another writer":        {record: record.Checkpoint{Kind: record.Removed}, isForeign: true},
		"an invalid one of another writer": {record: record.Checkpoint{}, isForeign: true},
	} {
		// An earlier record of the key is in doubt.
		d := Doubts{Home: 0, Spread: 2, Topics: Bounds{"t": {0, 0, 0}}, Last: map[string]Doubt{key: {Offset: 1}}}
		got := d.Read(9, key, c.record, c.isForeign, c.last)
		doubt, inDoubt := d.Last[key]
		if got != c.want || inDoubt == c.want || inDoubt && doubt != (Doubt{9, c.isForeign, c.record.Entry}) {
			t.Errorf("%s: taken %t, in doubt %+v", name, got, d.Last)
		}
	}
	d := Doubts{Home: 0, Spread: 2, Topics: Bounds{"t": {0}}, Last: map[string]Doubt{key: {Offset: 1}}}
	if d.Read(9, key, record.Checkpoint{}, false, home); len(d.Last) != 1 {
		t.Error("a record that says nothing resolved a doubt")
	}
}

func TestRemedy(t *testing.T) {
	const key = "c/core/pods/default/web"
	stored := record.Entry{UID: "A", ResourceVersion: "2", Topic: "t", Partition: 2, Offset: 7}
	forged := stored
	forged.ResourceVersion = "3"
	home, elsewhere := stored.Position(), publish.PositionOf(1, 7)
	for name, c := range map[string]struct {
		doubt Doubt
		last  uint64
		is    *record.Entry
		want  Remedy
	}{
		"the event is not read yet":         {Doubt{Entry: forged, Foreign: true}, home, nil, ReadEvent},
		"the topic does not hold the event": {Doubt{Entry: forged, Foreign: true}, home, &record.Entry{}, Later},
		"a forged entry":                    {Doubt{Entry: forged, Foreign: true}, home, &stored, Replace},
		"a removal":                         {Doubt{Foreign: true}, home, &stored, Replace},
		"an entry as ours":                  {Doubt{Entry: stored, Foreign: true}, home, &stored, Accept},
		"an object without an event":        {Doubt{Entry: forged}, 0, nil, Erase},
		"recorded in another partition":     {Doubt{Entry: forged}, elsewhere, nil, Erase},
		"trusted by the takeover":           {Doubt{Entry: record.Entry{Topic: "t", Partition: 1, Offset: 7}}, elsewhere, nil, Trust},
		"the same, but written since":       {Doubt{Entry: record.Entry{Topic: "t", Partition: 1, Offset: 7}, Foreign: true}, elsewhere, nil, Erase},
	} {
		d := Doubts{Home: 0, Spread: 2, Last: map[string]Doubt{key: c.doubt}}
		if got := d.Remedy(key, c.last, c.is); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
