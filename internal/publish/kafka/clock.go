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

// isExpired reports whether the session is due for renewal. The age of the session includes the
// time during which the process was suspended or its machine slept, because another process can
// have become the writer in that time. A session without a producer ID never expires.
func (s *session) isExpired() bool {
	now := time.Now()
	return s.producer.ID >= 0 && isPast(maxSessionAge, now.Sub(s.started), now.Round(0).Sub(s.started.Round(0)))
}

// clockStep is the tolerated backward step of the wall clock, for example by NTP.
const clockStep = time.Minute

// isPast reports whether more time than limit may have passed. monotonic and wall are the elapsed
// times of the two clocks. The monotonic clock stops while the machine sleeps, and the wall clock
// can be set. If the wall clock was set back by more than clockStep, the length of a sleep is
// unknown, so isPast returns true.
func isPast(limit, monotonic, wall time.Duration) bool {
	return monotonic > limit || wall > limit || wall < monotonic-clockStep
}

// wallClock returns the time without its monotonic part, which stops while the machine
// sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// notBefore sets a lower bound for the timestamps of later records. It ignores a bound that is more
// than [event.MaxSkew] ahead. Any client can write a record with such a timestamp, and brokers can
// reject the session's records that follow it (message.timestamp.after.max.ms).
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
