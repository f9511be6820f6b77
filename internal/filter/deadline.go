package filter

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends after a timeout, and can be reused if it did not.
// [context.WithTimeout] takes as long as a short expression.
type deadline struct {
	context.Context
	done  chan struct{}
	timer *time.Timer
}

// deadlines is a pool of deadlines with stopped timers.
type deadlines struct {
	sync.Pool
	timeout time.Duration
}

func (p *deadlines) get() *deadline {
	if d, ok := p.Get().(*deadline); ok {
		d.timer.Reset(p.timeout)
		return d
	}
	d := &deadline{Context: context.Background(), done: make(chan struct{})}
	d.timer = time.AfterFunc(p.timeout, func() { close(d.done) })
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
