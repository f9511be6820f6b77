package nats

import (
	"sync"
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

	deadline time.Time // when the wait for the response times out
}

// flights holds the messages that wait for a response, by the token in their reply subject. Only the
// caller that takes a flight out completes it. So each flight is completed exactly once.
type flights struct {
	mu     sync.Mutex
	tokens map[uint64]*flight
	last   uint64
	closed bool

	pending publish.Pending // flights that were added and are not completed, including those taken out
}

// add adds f under a new token. If f.reading is set, f was added before, and now waits for a second
// response. add returns false after close.
func (s *flights) add(f *flight) (token uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false
	}
	if !f.reading {
		s.pending.Begin()
	}
	if s.tokens == nil {
		s.tokens = map[uint64]*flight{}
	}
	s.last++
	s.tokens[s.last] = f
	return s.last, true
}

// take removes and returns the flight with the token. It returns nil if the flight was taken out
// before.
func (s *flights) take(token uint64) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.tokens[token]
	delete(s.tokens, token)
	return f
}

// takeIf removes and returns all flights that match cond.
func (s *flights) takeIf(cond func(*flight) bool) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var taken []*flight
	for token, f := range s.tokens {
		if cond(f) {
			delete(s.tokens, token)
			taken = append(taken, f)
		}
	}
	return taken
}

// close rejects further flights, and removes and returns all flights.
func (s *flights) close() []*flight {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.takeIf(func(*flight) bool { return true })
}
