package workqueue

import (
	"context"
	"errors"
)

// ErrDrainDeadline is the error that [Queue.Drain] returns if its context ends while keys are left.
var ErrDrainDeadline = errors.New("drain deadline exceeded with keys left in the queue")

// Drain rejects new keys, ends any pause, and waits until Run has handed out every key, including
// those in backoff, and all of them are completed. If ctx is done first, Drain returns
// [ErrDrainDeadline] and no more keys are handed out. A key that fails during the drain might not
// be retried; the next start publishes it.
//
// Drain does not use client-go's ShutDownWithDrain, which returns as soon as no key is being
// processed, even if other keys are still waiting.
func (q *Queue) Drain(ctx context.Context) error {
	q.endBackOff(q.priorities.drain())
	q.Resume()
	select {
	case <-q.priorities.emptied: // wait first, because client-go's queue accepts no keys after ShutDown
	case <-q.finished:
	case <-ctx.Done():
	}
	q.queue.ShutDown()
	q.priorities.close()
	select {
	case <-q.finished:
	case <-ctx.Done():
		q.end()
	}
	if ctx.Err() != nil { // both channels can be ready, and select then takes either
		return ErrDrainDeadline
	}
	return nil
}

// drain begins the drain. It returns the keys in backoff, which the caller must add to client-go's
// queue. These keys count as added until client-go's queue pushes them, so that emptied is not closed
// before that. If the handler of a key has just failed, client-go's queue pushes the key in Done.
func (q *priorityQueue) drain() []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	keys := q.at(delayed)
	for _, key := range keys {
		q.move(key, keyState{place: added, priority: q.keys[key].priority})
	}
	return keys
}

// checkEmptied closes emptied if the queue is draining and client-go's queue has every key.
func (q *priorityQueue) checkEmptied() {
	if q.draining && q.backlog.len()+q.total(added)+q.total(readded) == 0 {
		q.once.Do(func() { close(q.emptied) })
	}
}
