package workqueue

import "github.com/kuberelay/kuberelay/internal/event"

// Pause stops handing out keys until Resume, except keys that match the predicate. It parks the
// other keys, because a parked key takes a fraction of the resources of a key that fails
// repeatedly. Handlers keep the keys that they hold. A draining queue ignores Pause.
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
		q.except = except
	}
}

// resume returns the keys that the caller must add to client-go's queue.
func (q *priorityQueue) resume() (add []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.except = nil
	add = q.at(parked)
	for q.mayStage() {
		add = append(add, q.stage())
	}
	q.checkEmptied()
	return add
}

// park moves a key that was granted during a pause from held to parked. If the pause has ended,
// park does nothing and returns false.
func (q *priorityQueue) park(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.except == nil {
		return false
	}
	s := q.keys[key]
	q.move(key, keyState{place: parked, priority: s.priority})
	q.release(s.hold, 1)
	return true
}
