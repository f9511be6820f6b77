package workqueue

import (
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Place is the location of a key. It is "" if the key is neither in the queue nor handed out.
type Place string

// The places.
const (
	Queued            Place = "queued"
	QueuedLowPriority Place = "queued_low_priority"
	InFlight          Place = "in_flight"
	BackOff           Place = "back_off"
	Parked            Place = "parked" // until the end of a pause
)

// Find returns the place of a key, and how often its handler failed since its last success. It does
// not block.
func (q *Queue) Find(key event.Key) (at Place, failures int) {
	handle := unique.Make(key)
	return q.priorities.find(handle), q.queue.NumRequeues(handle)
}

// Len returns the number of keys that wait to be handed out. It does not include the keys that
// [Queue.Delayed] counts.
func (q *Queue) Len() int {
	p := q.priorities
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting(normal) + p.waiting(low) + p.backlog.len()
}

// Delayed returns the number of keys in backoff or parked by a pause.
func (q *Queue) Delayed() int {
	p := q.priorities
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total(delayed) + p.total(parked)
}

// InFlight returns the number of keys that are handed out and not completed.
func (q *Queue) InFlight() int {
	p := q.priorities
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.all.keys.used)
}

// Background returns how many low-priority keys have been added since the queue last had none, and how
// many of these keys are still waiting.
func (q *Queue) Background() (added, waiting int64) {
	p := q.priorities
	p.mu.Lock()
	defer p.mu.Unlock()
	// More keys can wait than were added, because parked keys and keys in backoff wait again.
	return p.background, min(p.background, int64(p.waiting(low)+p.backlog.len()))
}

func (q *priorityQueue) find(key item) Place {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.keys[key]
	switch {
	case s.place == held, s.place == readded:
		return InFlight
	case s.place == delayed:
		return BackOff
	case s.place == parked:
		return Parked
	case s.place != absent && s.priority == normal:
		return Queued
	case s.place != absent || q.backlog.has(key.Value()):
		return QueuedLowPriority
	}
	return ""
}

// waiting returns how many keys of a priority client-go's queue has or is about to get.
func (q *priorityQueue) waiting(as priority) int { return q.count[added][as] + q.count[queued][as] }

func (q *priorityQueue) total(at place) int { return q.count[at][normal] + q.count[at][low] }

func (q *priorityQueue) at(p place) (keys []item) {
	if q.total(p) == 0 {
		return nil // the relay calls Resume often, and the map can have millions of keys
	}
	for key, s := range q.keys {
		if s.place == p {
			keys = append(keys, key)
		}
	}
	return keys
}
