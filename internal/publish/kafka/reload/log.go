package reload

import "github.com/kuberelay/kuberelay/internal/publish/kafka/record"

// Lookup is the result of a read at one offset.
type Lookup int

// The values of Lookup.
const (
	NotRead  Lookup = iota
	Missing         // the log has no record at the offset
	Other           // the log has another record at the offset
	Expected        // the log has the record that was stored at the offset
)

// Log is the state of one partition's log, as far as a load has read it.
type Log struct {
	Start, End int64        // the first offset, and the offset after the last record
	Next       int64        // the offset after the last record that the session wrote
	Marker     record.Entry // the session's marker

	Last Lookup // the last record that the session wrote, at offset Next-1
	// Replaceable means that compaction might have removed the last record: it has no value, or the
	// session has stored more records since.
	Replaceable bool
	AtMarker    Lookup
}

// Verdict is the result of checking a partition's log, or the next read that the check needs.
type Verdict int

// The values of Verdict.
const (
	Intact     Verdict = iota // the log holds what the session wrote
	ReadLast                  // look up the last record
	ReadMarker                // look up the session's marker
	Shortened                 // the log ends before the last record: the session ends
	Replaced                  // the last record is not in its place: the session ends
	Recreated                 // the marker is not in its place: the session ends
	Compacted                 // compaction removed the marker: the session must be renewed
)

// Verdict checks that the log still holds the last record that the session wrote to it, and the
// session's marker. Both checks are necessary. If the log was recreated, the session might have
// written the record to the new log. If the log lost its end, the marker might precede the lost part.
//
// Compaction removes the marker, which has no value, after delete.retention.ms. That time is rarely
// shorter than a session. The next session writes another marker.
func (l Log) Verdict() Verdict {
	switch {
	case l.End < l.Next:
		return Shortened
	case l.Next-1 < l.Start: // the records were deleted, see Bounds.Take
		return Intact
	case l.Last == NotRead:
		return ReadLast
	case l.Last == Other, l.Last == Missing && !l.Replaceable:
		return Replaced
	case l.Marker.Offset < l.Start:
		return Intact
	case l.AtMarker == NotRead:
		return ReadMarker
	case l.AtMarker == Expected:
		return Intact
	case l.AtMarker == Missing && l.Marker.NoValue:
		return Compacted
	}
	return Recreated
}
