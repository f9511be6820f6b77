package sender

import (
	"slices"
	"testing"
)

// TestUnreadOffsets verifies that a sender remembers the offsets between its own records, from its
// first record on.
func TestUnreadOffsets(t *testing.T) {
	s := &Sender{}
	if got := s.TakeUnread(40); got != nil {
		t.Errorf("before the marker: got %v", got)
	}
	s.wrote(Span{10, 11}) // the marker; the takeover has read everything before it
	s.wrote(Span{11, 14})
	s.wrote(Span{15, 16})
	s.wrote(Span{20, 22})
	if got, want := s.TakeUnread(25), []Span{{14, 15}, {16, 20}, {22, 25}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.wrote(Span{23, 24}) // was in flight during TakeUnread
	if got := s.TakeUnread(25); got != nil {
		t.Errorf("again: got %v", got)
	}
	s.wrote(Span{30, 31})
	s.PutBack([]Span{{22, 25}})
	if got, want := s.TakeUnread(31), []Span{{22, 25}, {25, 30}}; !slices.Equal(got, want) {
		t.Errorf("after a failed read: got %v, want %v", got, want)
	}
}

// TestUnreadOffsetsAreBounded verifies that a sender merges ranges beyond maxSpans, as on a topic
// that many clusters share.
func TestUnreadOffsetsAreBounded(t *testing.T) {
	s := &Sender{}
	for n := range int64(3 * maxSpans) {
		s.wrote(Span{2 * n, 2*n + 1})
	}
	got := s.TakeUnread(0)
	if last := got[len(got)-1]; len(got) != maxSpans || last.To != 6*maxSpans-2 {
		t.Errorf("%d ranges, the last is %v", len(got), last)
	}
}

// TestNoMarkerBeforeTheTakeover verifies that a sender records the first unread offset only after the
// session has recorded its marker.
func TestNoMarkerBeforeTheTakeover(t *testing.T) {
	var recorded []int64
	s := &Sender{Config: Config{Marker: func(unread int64) { recorded = append(recorded, unread) }}}
	for _, at := range []Span{{10, 11}, {15, 16}} { // markers; the second one is of another attempt to take over
		s.wrote(at)
		s.recordUnread()
	}
	if len(recorded) > 0 {
		t.Errorf("recorded %v before the takeover ended", recorded)
	}
	s.RecordMarker(0)
	s.wrote(Span{18, 19})
	s.recordUnread()
	if want := []int64{0, 11}; !slices.Equal(recorded, want) {
		t.Errorf("recorded %v, want %v", recorded, want)
	}
}
