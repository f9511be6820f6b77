package workqueue

import "github.com/kuberelay/kuberelay/internal/event"

// Pause stops handing out keys until Resume, except keys that match the predicate. It parks the
// other keys, because a parked key takes a fraction of the resources of a key that fails
// repeatedly. Handlers keep the keys that they hold. A draining queue ignores Pause.
func (q *Queue) Pause(except func(event.Key) bool) {
	q.staging.Lock()
	defer q.staging.Unlock()
	if q.draining {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused, q.except = true, except
}

// Resume ends a pause.
func (q *Queue) Resume() {
	q.unpark()
	q.feed()
}

func (q *Queue) unpark() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	for key := range q.parked {
		q.queue.Add(key)
	}
	q.parked = nil
}

func (q *Queue) isPaused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.paused
}

func (q *Queue) isParked(key item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, is := q.parked[key]
	return is
}

// park parks a key during a pause, and reports whether it did.
func (q *Queue) park(key item) bool {
	q.mu.Lock()
	paused, except := q.paused, q.except
	delete(q.parked, key)
	q.mu.Unlock()
	if !paused || except(key.Value()) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.paused { // Resume was called meanwhile
		return false
	}
	if q.parked == nil {
		q.parked = map[item]struct{}{}
	}
	q.parked[key] = struct{}{}
	return true
}
