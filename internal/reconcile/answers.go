package reconcile

import (
	"maps"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// question is what a consistent read answers: which of two states that contradict each
// other is the present one.
type question struct {
	uid, version string      // of what the informer shows
	acked        event.Acked // what is known of the event on the bus
	epoch        uint16
}

func questionOf(live *event.Object, a event.Acked, epoch uint16) question {
	return question{string(live.UID), live.ResourceVersion, a, epoch}
}

// answers remembers which questions were answered. Where the informer is behind, only the
// watch can bring what is missing, and another read cannot help. If the watch never brings
// it, the question may be asked again after a pause.
type answers struct {
	mu sync.Mutex
	of map[event.Key]answer
}

// answer is the last question about a key that was answered, and until when the answer
// stands if nothing changes.
type answer struct {
	question
	until time.Time
	pause time.Duration
}

const (
	firstPause   = time.Second
	longestPause = 10 * time.Minute
)

// stands reports whether a question need not be asked.
func (s *answers) stands(k event.Key, q question, now time.Time) bool {
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

// prune drops the answers that have not stood for a while, so that memory does not grow
// with the keys that were ever in question.
func (s *answers) prune(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ event.Key, a answer) bool { return a.until.Add(longestPause).Before(now) })
}
