package kafka

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/index"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// flight is a message whose completion has not been called.
type flight struct {
	m        *event.Message
	record   recordbatch.Record
	id       index.ID
	done     func(uint64, error)
	started  time.Time
	deadline time.Time

	s      *session
	t      *topic
	sender *sender.Sender
	item   *sender.Item
	size   int // bytes that the message uses of the sender's share; 0 before admission

	finished atomic.Bool
}

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

// sweepEvery is the longest interval between two checks for messages that timed out.
const sweepEvery = 500 * time.Millisecond

// sweep completes messages that timed out. A message in a batch might still be stored: the sender
// keeps sending the batch. It sends no other event of the object before the batch is acknowledged.
// Messages that wait behind a stalled batch fail at once, because they would use up the in-flight
// limit that other partitions need.
func (b *Bus) sweep(now time.Time) {
	for _, f := range b.flights.list() {
		late := now.After(f.deadline)
		switch {
		case !late && !f.sender.IsStalled(now):
		case f.sender.Withdraw(f.item):
			f.s.index.End(f.id, 0)
			b.finish(f, 0, publish.NotSent(errWaited))
		case late:
			b.finish(f, 0, errTimeout)
		}
	}
}
