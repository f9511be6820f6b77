package nats

import (
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

// flight is a message whose completion has not been called: it awaits its
// acknowledgement, or the answer to the read that resolves a refusal.
type flight struct {
	m       *event.Message
	subject string
	done    func(uint64, error)
	sent    time.Time
	reading bool // the answer awaited is the subject's last message

	deadline time.Time // of the answer awaited
}

// flights holds what awaits an answer, by the token in its reply subject. Whoever
// takes a flight out of it, and nobody else, completes it: that is what makes
// completion happen exactly once.
type flights struct {
	mu     sync.Mutex
	tokens map[uint64]*flight
	last   uint64
	closed bool

	pending outcome.Pending // registered and not yet completed: taken ones included
}

// add registers f under a new token. It is refused once closed.
func (s *flights) add(f *flight) (token uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false
	}
	s.pending.Begin()
	return s.put(f), true
}

// again registers a flight that was taken, for a second answer.
func (s *flights) again(f *flight) (token uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false
	}
	return s.put(f), true
}

func (s *flights) put(f *flight) uint64 {
	if s.tokens == nil {
		s.tokens = map[uint64]*flight{}
	}
	s.last++
	s.tokens[s.last] = f
	return s.last
}

// take removes and returns the flight of a token, nil if another had it.
func (s *flights) take(token uint64) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.tokens[token]
	delete(s.tokens, token)
	return f
}

// takeIf removes and returns all flights for which cond holds.
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

// close refuses further flights and takes out all there are.
func (s *flights) close() []*flight {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.takeIf(func(*flight) bool { return true })
}
