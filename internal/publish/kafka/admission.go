package kafka

import (
	"maps"
	"slices"
	"sync"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// stallFraction divides [Options.AckTimeout]. A batch without an acknowledgement counts as stalled
// after the resulting time, because its partition has no leader, or its leader hangs.
const stallFraction = 4

// share returns the part of the in-flight limit that one partition may use. With this limit, a few
// stalled partitions leave room for the others.
func (s *session) share() sender.Share {
	part := 1
	switch n := s.partitions.Load(); {
	case n >= 4:
		part = 4
	case n >= 2:
		part = 2
	}
	return sender.Share{Events: max(1, s.b.opts.MaxInFlight/part), Bytes: max(1, s.b.opts.MaxBytesInFlight/part)}
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
