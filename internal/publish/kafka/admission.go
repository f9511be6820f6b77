package kafka

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
)

// usage is the part of the in-flight limit that events use.
type usage struct{ events, bytes int }

// stallFraction is the divisor of [Options.AckTimeout] after which a batch without an
// acknowledgement counts as stalled: the partition has no leader, or its leader hangs.
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

// release returns what admit reserved.
func (s *sender) release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.events--
	s.used.bytes -= bytes
}

func (s *sender) stalled(now time.Time) bool { return !s.since.IsZero() && now.Sub(s.since) > s.stall }

// isStalled reports whether a batch has been waiting for its acknowledgement for too long.
func (s *sender) isStalled(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled(now)
}

// share returns the part of the in-flight limit that one partition may use. A few stalled
// partitions leave room for the others.
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

// working records the start or the end of a batch.
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
	pending publish.Pending // messages whose completion has not returned

	mu  sync.Mutex
	all map[*flight]struct{} // those that a sender holds
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

// list returns all of them.
func (s *flights) list() []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}
