package sender

import "time"

// Share is a part of the in-flight limit of a bus: a number of events and their size in bytes.
type Share struct{ Events, Bytes int }

// Admit reserves room for an event of the given size within the sender's share, and reports whether
// it did. It reserves no room if the share is used up or the sender has stalled. A sender without
// events accepts an event of any size.
func (s *Sender) Admit(bytes int, share Share, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.IsStalled(now) || s.used.Events > 0 && (s.used.Events >= share.Events || s.used.Bytes+bytes > share.Bytes) {
		return false
	}
	s.used.Events++
	s.used.Bytes += bytes
	return true
}

// Release frees the room that Admit reserved.
func (s *Sender) Release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Events--
	s.used.Bytes -= bytes
}

// IsStalled reports whether the sender has waited too long for an acknowledgement, or for
// [Config.Ready].
func (s *Sender) IsStalled(now time.Time) bool {
	since := s.since.Load()
	return since != 0 && now.Sub(s.created)-time.Duration(since) > s.Stall
}

// working records that a batch, or a wait for [Config.Ready], starts or ends.
func (s *Sender) working(is bool) {
	since := time.Duration(0)
	if is {
		since = max(1, time.Since(s.created)) // at least 1, because 0 means none, and the clock might not have advanced
	}
	s.since.Store(int64(since))
}
