package kafka

import (
	"context"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// maxSessionAge is the age at which a session is renewed. Brokers forget a producer in a
// partition after a day without writes (producer.id.expiration.ms), and then no longer
// reject older epochs there. They forget its transactional ID after a week without
// InitProducerID (transactional.id.expiration.ms). A new session calls InitProducerID and
// writes to every partition.
const maxSessionAge = 12 * time.Hour

// isExpired also returns true in a process that was suspended, or whose machine slept,
// while another process became the writer.
func (s *session) isExpired() bool {
	now := time.Now()
	return s.producer.ID >= 0 && isPast(maxSessionAge, now.Sub(s.started), now.Round(0).Sub(s.started.Round(0)))
}

// clockStep is the tolerated backward step of the wall clock, for example by NTP.
const clockStep = time.Minute

// isPast reports whether more time than limit may have passed. monotonic and wall are the
// elapsed times of the two clocks. The monotonic clock stops while the machine sleeps, and
// the wall clock can be set. After the wall clock was set back, the length of a sleep is
// unknown.
func isPast(limit, monotonic, wall time.Duration) bool {
	return monotonic > limit || wall > limit || wall < monotonic-clockStep
}

// wallClock returns the time without its monotonic part, which stops while the machine
// sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// notBefore sets a lower bound of the next timestamps. It ignores one that is too far ahead:
// anyone can write it, and brokers reject it (message.timestamp.after.max.ms).
func (s *sender) notBefore(timestamp time.Time) {
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

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
