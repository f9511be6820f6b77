package reconcile

import (
	"maps"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// question is a contradiction between an informer and the bus. A consistent read answers which of
// the two states is the current one.
type question struct {
	uid, version string      // state in the informer
	acked        event.Acked // last known event on the bus
	epoch        uint16
}

func questionOf(live *event.Object, a event.Acked, epoch uint16) question {
	return question{string(live.UID), live.ResourceVersion, a, epoch}
}

// answers records, for each key, the last question that a read answered. If an informer is behind,
// another read doesn't help, because only the informer's watch can catch up. But the watch might
// never catch up, so the same question may be asked again after a pause.
type answers struct {
	mu sync.Mutex
	of map[event.Key]answer
}

// answer records that a read answered a question about a key. It expires at until, which is one
// pause after the read.
type answer struct {
	question
	until time.Time
	pause time.Duration
}

const (
	firstPause   = time.Second
	longestPause = 10 * time.Minute
)

// isAnswered reports whether a question has an answer that has not expired.
func (s *answers) isAnswered(k event.Key, q question, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.of[k]
	return ok && a.question == q && now.Before(a.until)
}

// record records that a read answered a question. The answer expires after a pause. If the key's
// previous answer was to the same question, the pause doubles.
func (s *answers) record(k event.Key, q question, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := firstPause
	if a, ok := s.of[k]; ok && a.question == q {
		pause = min(2*a.pause, longestPause)
	}
	s.of[k] = answer{q, now.Add(pause), pause}
}

// prune drops the answers that expired more than longestPause ago. Otherwise the map would keep an
// answer for every key that was ever read.
func (s *answers) prune(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ event.Key, a answer) bool { return a.until.Add(longestPause).Before(now) })
}
