package workqueue

import "github.com/kuberelay/kuberelay/internal/event"

// Pause stops handing out keys until Resume, except keys that match the predicate, which must not
// call the queue. It parks the other keys, because a parked key takes a fraction of the resources of
// a key that fails repeatedly. Handlers keep the keys that they hold. A draining queue ignores Pause.
func (q *Queue) Pause(except func(event.Key) bool) { q.priorities.pause(except) }

// Resume ends a pause.
func (q *Queue) Resume() {
	for _, key := range q.priorities.resume() {
		q.queue.Add(key)
	}
}

func (q *priorityQueue) pause(except func(event.Key) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.draining {
		q.paused, q.except = true, except
	}
}

// resume returns the keys that the caller must add to client-go's queue.
func (q *priorityQueue) resume() (add []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	add = q.at(parked)
	for q.mayStage() {
		add = append(add, q.stage())
	}
	q.checkEmptied()
	return add
}
