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
	q.staging.Lock()
	defer q.staging.Unlock()
	failures = q.queue.NumRequeues(handle)
	q.mu.Lock()
	_, delayed := q.delayed[handle]
	_, parked := q.parked[handle]
	q.mu.Unlock()
	p, known := q.priorities.find(handle)
	switch {
	case parked:
		at = Parked
	case delayed:
		at = BackOff
	case known && p.queued && p.priority == low, q.backlog.has(key):
		at = QueuedLowPriority
	case known && p.queued:
		at = Queued
	case known:
		at = InFlight
	}
	return at, failures
}

// Background returns how many low-priority keys have been added since the queue last had none, and how
// many of these keys are still waiting.
func (q *Queue) Background() (added, waiting int64) {
	q.staging.Lock()
	defer q.staging.Unlock()
	return q.background, int64(q.priorities.waiting(low) + q.backlog.len())
}

// find returns the state of a key that is queued or handed out.
func (q *priorityQueue) find(key item) (keyState, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.keys[key]
	return p, ok
}
