package kafka

import (
	"time"
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
