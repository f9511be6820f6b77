package reconcile

import (
	"maps"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// question is a contradiction between the informer and the bus. A consistent read answers which
// of the two states is the present one.
type question struct {
	uid, version string      // what the informer has
	acked        event.Acked // what the bus has, as far as it is known
	epoch        uint16
}

func questionOf(live *event.Object, a event.Acked, epoch uint16) question {
	return question{string(live.UID), live.ResourceVersion, a, epoch}
}

// answers remembers which questions were answered. If the informer is behind, only its watch can
// catch up, and another read cannot help. In case the watch never does, the question may be asked
// again after a pause.
type answers struct {
	mu sync.Mutex
	of map[event.Key]answer
}

// answer is the last answered question about a key, and until when the answer is valid if nothing
// changes.
type answer struct {
	question
	until time.Time
	pause time.Duration
}

const (
	firstPause   = time.Second
	longestPause = 10 * time.Minute
)

// isAnswered reports whether a question has a valid answer.
func (s *answers) isAnswered(k event.Key, q question, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.of[k]
	return ok && a.question == q && now.Before(a.until)
}

// record records that a question was answered.
func (s *answers) record(k event.Key, q question, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := firstPause
	if a, ok := s.of[k]; ok && a.question == q {
		pause = min(2*a.pause, longestPause)
	}
	s.of[k] = answer{q, now.Add(pause), pause}
}

// prune drops the answers that expired long ago, so that memory does not grow with every key that
// was ever in question.
func (s *answers) prune(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ event.Key, a answer) bool { return a.until.Add(longestPause).Before(now) })
}
