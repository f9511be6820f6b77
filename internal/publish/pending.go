package publish

import (
	"context"
	"sync/atomic"
)

// Pending counts operations in progress. Unlike [sync.WaitGroup.Wait], Wait takes a context, and
// Begin may be called while another goroutine waits. The zero value is ready for use.
type Pending struct {
	count atomic.Int64
	none  Condition
}

// Begin increments the counter.
func (p *Pending) Begin() { p.count.Add(1) }

// End decrements the counter.
func (p *Pending) End() {
	if p.count.Add(-1) == 0 {
		p.none.Changed()
	}
}

// Wait blocks until the counter is 0 or ctx ends.
func (p *Pending) Wait(ctx context.Context) error {
	return p.none.Await(ctx, func() bool { return p.count.Load() == 0 })
}

// Condition lets goroutines wait for a state that is changed without a lock. Unlike [sync.Cond.Wait],
// Await takes a context. The zero value is ready for use.
type Condition struct {
	change atomic.Pointer[chan struct{}] // closed at the next change; nil while no goroutine waits
}

// Changed wakes the goroutines that wait. Call it after each change of the state.
func (c *Condition) Changed() {
	if change := c.change.Swap(nil); change != nil {
		close(*change)
	}
}

// Await blocks until holds returns true or ctx ends. It returns nil if holds returned true, and
// context.Cause(ctx) otherwise.
func (c *Condition) Await(ctx context.Context, holds func() bool) error {
	for !holds() {
		c.change.CompareAndSwap(nil, new(make(chan struct{})))
		change := c.change.Load()
		if change == nil || holds() { // the state changed after the first call of holds
			continue
		}
		select {
		case <-*change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
