package sender

import (
	"cmp"
	"slices"
)

// Span is a range of offsets. To is exclusive.
type Span struct{ From, To int64 }

// Spans are sorted and do not overlap.
type Spans []Span

// maxSpans bounds the number of remembered ranges per partition. Beyond the limit, the last range
// grows and includes the session's own records in between. The caller drops these, like the records of
// batches in flight.
const maxSpans = 1 << 14

// wrote updates known and unread after the sender has stored records. The caller holds mu.
func (s *Sender) wrote(at Span) {
	if s.known != 0 && at.From > s.known {
		s.addUnread(Span{s.known, at.From})
	}
	s.known = max(s.known, at.To)
}

func (s *Sender) addUnread(of Span) {
	if n := len(s.unread); n == maxSpans {
		s.unread[n-1].To = of.To
		return
	}
	s.unread = append(s.unread, of)
}

// Contains reports whether an offset is in one of the spans.
func (of Spans) Contains(offset int64) bool {
	_, found := slices.BinarySearchFunc(of, offset, func(s Span, offset int64) int {
		if s.From <= offset && offset < s.To {
			return 0
		}
		return cmp.Compare(s.From, offset)
	})
	return found
}

// recordUnread stores the first unread offset in the marker's entry, unless the entry already has
// one. Before RecordMarker, the marker must have no entry, because the entry would vouch for events that
// are not recorded yet. The caller holds mu.
func (s *Sender) recordUnread() {
	if s.isMarked && s.markedUnread == 0 && len(s.unread) > 0 {
		s.markedUnread = s.unread[0].From
		s.Marker(s.markedUnread)
	}
}

// RecordRead updates the marker's entry after a load. unanswered is the first offset of an unanswered
// foreign record, or 0 if there is none. The entry gets that offset, or the first unread offset if
// that is lower.
func (s *Sender) RecordRead(unanswered int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread := unanswered
	if len(s.unread) > 0 && (unread == 0 || s.unread[0].From < unread) {
		unread = s.unread[0].From
	}
	if unread != s.markedUnread {
		s.markedUnread = unread
		s.Marker(unread)
	}
}

// TakeUnread removes and returns all unread offsets. end is the end of the log. Some of the offsets
// can belong to batches in flight.
func (s *Sender) TakeUnread(end int64) Spans {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != 0 && end > s.known {
		s.addUnread(Span{s.known, end})
		s.known = end
		s.recordUnread() // before a later event is recorded
	}
	unread := s.unread
	s.unread = nil
	return unread
}

// PutBack undoes TakeUnread.
func (s *Sender) PutBack(unread Spans) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = append(unread, s.unread...)
}

// RecordMarker records the session's marker, before other records of the partition are recorded.
// unread is the first unread offset of another writer, or 0 if there is none.
func (s *Sender) RecordMarker(unread int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isMarked, s.markedUnread = true, unread
	s.Marker(unread)
}

// TakeForeign is like TakeUnread, but returns only offsets of other writers. While a batch is in
// flight, it leaves all offsets after the last known record to the next load, because the brokers
// might already have stored the batch there.
func (s *Sender) TakeForeign(end int64) Spans {
	if s.since.Load() != 0 {
		end = 0
	}
	return s.TakeUnread(end)
}
