package publish

import (
	"context"
	"sync"
)

// Pending counts operations in progress. Unlike a [sync.WaitGroup], Wait takes a context,
// and Begin may be called while somebody waits. The zero value is ready for use.
type Pending struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed at count 0, nil while nobody waits
}

// Begin increments the counter.
func (p *Pending) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
}

// End decrements the counter.
func (p *Pending) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count--
	if p.count == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// Wait blocks until the counter is 0 at some moment, or ctx ends.
func (p *Pending) Wait(ctx context.Context) error {
	p.mu.Lock()
	if p.count == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.none == nil {
		p.none = make(chan struct{})
	}
	none := p.none
	p.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
