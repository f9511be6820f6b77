package sender

import (
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// wallClock returns the time without its monotonic part, which stops while the machine
// sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// NotBefore sets a lower bound for the timestamps of later records. It ignores a bound that is more
// than [event.MaxSkew] ahead. Any client can write a record with such a timestamp, and brokers can
// reject the session's records that follow it (message.timestamp.after.max.ms).
func (s *Sender) NotBefore(timestamp time.Time) {
	if time.Until(timestamp) > event.MaxSkew {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timestamp = later(s.timestamp, timestamp)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
