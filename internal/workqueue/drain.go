package workqueue

import (
	"context"
	"errors"
)

// ErrDrainDeadline is the error of a Drain whose context ended while keys were left.
var ErrDrainDeadline = errors.New("drain deadline exceeded with keys left in the queue")

// Drain rejects new keys, and waits until Run has handed out every key, including those in
// back-off, and all keys are completed. It returns [ErrDrainDeadline] when ctx ends first. It ends
// a pause. A key that fails during the drain might not be retried; the next start publishes it.
//
// Drain does not use client-go's ShutDownWithDrain, which returns as soon as no key is being
// processed, even if other keys still wait.
func (q *Queue) Drain(ctx context.Context) error {
	q.staging.Lock()
	q.draining = true
	q.staging.Unlock()
	q.RetryNow()
	q.Resume()
	select {
	case <-q.emptied: // wait before ShutDown, because after it the queue accepts no keys from the backlog
	case <-q.finished:
	case <-ctx.Done():
	}
	q.queue.ShutDown()
	q.priorities.drain()
	select {
	case <-q.finished:
		return nil
	case <-ctx.Done():
		return ErrDrainDeadline
	}
}
