package publish

import (
	"context"
	"sync/atomic"
)

// Pending counts operations in progress. Unlike [sync.WaitGroup.Wait], Wait takes a context, and
// Begin may be called while another goroutine waits. The zero value is ready for use.
type Pending struct {
	count   atomic.Int64
	waiting atomic.Pointer[chan struct{}] // closed at count 0, nil while no goroutine waits
}

// Begin increments the counter.
func (p *Pending) Begin() { p.count.Add(1) }

// End decrements the counter.
func (p *Pending) End() {
	if p.count.Add(-1) == 0 {
		p.wake()
	}
}

func (p *Pending) wake() {
	if none := p.waiting.Swap(nil); none != nil {
		close(*none)
	}
}

// Wait blocks until the counter reaches 0, even if it then increases again, or until ctx ends.
func (p *Pending) Wait(ctx context.Context) error {
	none := p.waiting.Load()
	for none == nil {
		p.waiting.CompareAndSwap(nil, new(make(chan struct{})))
		none = p.waiting.Load()
	}
	if p.count.Load() == 0 { // End can have looked for waiting goroutines before this one
		p.wake()
		return nil
	}
	select {
	case <-*none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
