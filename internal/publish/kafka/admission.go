package kafka

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// usage is a part of the in-flight limit: a number of events and their size in bytes.
type usage struct{ events, bytes int }

// stallFraction divides [Options.AckTimeout]. A batch without an acknowledgement counts as stalled
// after the resulting time, because its partition has no leader, or its leader hangs.
const stallFraction = 4

// admit reserves room for an event of the given size within the sender's share. It returns
// false if the share is used up or the sender has stalled. A sender without events accepts
// an event of any size.
func (s *sender) admit(bytes int, share usage, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled(now) || s.used.events > 0 && (s.used.events >= share.events || s.used.bytes+bytes > share.bytes) {
		return false
	}
	s.used.events++
	s.used.bytes += bytes
	return true
}

// release frees the room that admit reserved.
func (s *sender) release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.events--
	s.used.bytes -= bytes
}

func (s *sender) stalled(now time.Time) bool { return !s.since.IsZero() && now.Sub(s.since) > s.stall }

// isStalled reports whether the sender has waited too long for an acknowledgement, or for the
// function ready.
func (s *sender) isStalled(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled(now)
}

// share returns the part of the in-flight limit that one partition may use. With this limit, a few
// stalled partitions leave room for the others.
func (s *session) share() usage {
	part := 1
	switch n := s.partitions.Load(); {
	case n >= 4:
		part = 4
	case n >= 2:
		part = 2
	}
	return usage{max(1, s.b.opts.MaxInFlight/part), max(1, s.b.opts.MaxBytesInFlight/part)}
}

// working records that a batch, or a wait for the function ready, starts or ends.
func (s *sender) working(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
	if is {
		s.since = time.Now()
	}
}

// flights are the messages in flight.
type flights struct {
	pending publish.Pending // messages whose completion callback has not returned

	mu  sync.Mutex
	all map[*flight]struct{} // messages that were passed to a sender and are not complete
}

func (s *flights) add(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*flight]struct{}{}
	}
	s.all[f] = struct{}{}
}

func (s *flights) remove(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, f)
}

// list returns all messages that were passed to a sender and are not complete.
func (s *flights) list() []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}
