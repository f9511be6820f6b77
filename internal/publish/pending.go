package publish

import (
	"context"
	"sync"
)

// Pending counts operations in progress. Unlike [sync.WaitGroup.Wait], Wait takes a context, and
// Begin may be called while another goroutine waits. The zero value is ready for use.
type Pending struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed at count 0, nil while no goroutine waits
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

// Wait blocks until the counter reaches 0, even if it then increases again, or until ctx ends.
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
