package filter

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends after timeout, and is used again if it did not:
// [context.WithTimeout] costs as much as a short expression.
type deadline struct {
	context.Context
	done  chan struct{}
	timer *time.Timer
}

// deadlines has those whose timers are stopped. The zero value is ready.
type deadlines struct{ sync.Pool }

func (p *deadlines) get() *deadline {
	if d, ok := p.Get().(*deadline); ok {
		d.timer.Reset(timeout)
		return d
	}
	d := &deadline{Context: context.Background(), done: make(chan struct{})}
	d.timer = time.AfterFunc(timeout, func() { close(d.done) })
	return d
}

func (p *deadlines) put(d *deadline) {
	if d.timer.Stop() {
		p.Put(d)
	}
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
