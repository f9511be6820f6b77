package outcome

import (
	"context"
	"sync"
)

// Pending counts what has begun and not ended. Unlike a [sync.WaitGroup] it may be
// waited for with a context, and begun while somebody waits. The zero value is ready.
type Pending struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed at count 0, nil while nobody waits
}

// Begin counts one more.
func (p *Pending) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
}

// End counts one off.
func (p *Pending) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count--
	if p.count == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// Wait blocks until, at some moment, nothing is pending, or ctx ends.
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
