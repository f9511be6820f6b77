package nats

import (
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// flight is a message in flight. It waits for its acknowledgement, or for the response to the read
// after a rejection.
type flight struct {
	m       *event.Message
	subject string
	done    func(uint64, error)
	sent    time.Time
	reading bool // the flight waits for the last message of its subject

	token    uint64    // part of the reply subject; the slot is token modulo the number of slots
	slot     uint64    // held from the wait for the in-flight limit until the completion
	deadline time.Time // when the wait for the response times out
}

// flights holds the messages in flight, each in a slot of its own, until their response arrives. Only the
// caller that takes a flight out of its slot completes it. So each flight is completed exactly once. A
// flight doesn't change while it is in its slot.
type flights struct {
	slots  []atomic.Pointer[flight]
	free   chan uint64 // the slots that no flight holds; the capacity is the in-flight limit
	last   atomic.Uint64
	closed atomic.Bool

	pending publish.Pending // flights that are sent and not completed, including those taken out of their slot
}

func newFlights(limit int) *flights {
	s := &flights{slots: make([]atomic.Pointer[flight], limit), free: make(chan uint64, limit)}
	for slot := range s.slots {
		s.free <- uint64(slot)
	}
	return s
}

// put puts f into its slot under a new token. It returns false if the flights are closed and close did not
// get f. The caller then completes f.
func (s *flights) put(f *flight) bool {
	f.token = s.last.Add(1)*uint64(len(s.slots)) + f.slot
	s.slots[f.slot].Store(f)
	return !s.closed.Load() || s.take(f.token) == nil
}

// take removes and returns the flight with the token. It returns nil if the flight was taken out
// before.
func (s *flights) take(token uint64) *flight {
	slot := &s.slots[token%uint64(len(s.slots))]
	if f := slot.Load(); f != nil && f.token == token && slot.CompareAndSwap(f, nil) {
		return f
	}
	return nil
}

// takeIf removes and returns all flights that match cond.
func (s *flights) takeIf(cond func(*flight) bool) (taken []*flight) {
	for slot := range s.slots {
		if f := s.slots[slot].Load(); f != nil && cond(f) && s.slots[slot].CompareAndSwap(f, nil) {
			taken = append(taken, f)
		}
	}
	return taken
}

// close rejects further flights, and removes and returns all flights.
func (s *flights) close() []*flight {
	s.closed.Store(true)
	return s.takeIf(func(*flight) bool { return true })
}
