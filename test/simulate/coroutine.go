package simulate

import (
	"errors"
	"iter"
)

// coroutine is a blocking function of the core. It runs only in steps.
type coroutine struct {
	id     int8
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	failed bool // its pending request fails
}

// killed unwinds the stack of a coroutine whose process was killed.
type killed struct{}

// errFailed is the error of every failed request.
var errFailed = errors.New("no answer")

// spawn creates a coroutine for f, which starts in a later step.
func (p *process) spawn(id int8, f func()) {
	c := &coroutine{id: id}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		c.yield = yield
		f()
	})
	p.coroutines = append(p.coroutines, c)
}

func (p *process) coroutine(id int8) *coroutine {
	for _, c := range p.coroutines {
		if c.id == id {
			return c
		}
	}
	return nil
}

// resume runs a coroutine until it blocks or ends.
func (p *process) resume(c *coroutine, failed bool) {
	before := p.running
	p.running, c.failed = c, failed
	_, blocked := c.next()
	p.running = before
	if !blocked {
		p.end(c)
	}
}

func (p *process) end(c *coroutine) {
	for n, other := range p.coroutines {
		if other == c {
			p.coroutines = append(p.coroutines[:n:n], p.coroutines[n+1:]...)
			return
		}
	}
}

// block gives control to other steps. It returns an error if the request fails.
func (p *process) block() error {
	c := p.running
	if c == nil {
		panic("only a coroutine can block")
	}
	if !c.yield(struct{}{}) {
		panic(killed{})
	}
	if c.failed {
		return errFailed
	}
	return nil
}

// request sends a blocking request to a server, which runs f. Both the request and the response can
// fail.
func (p *process) request(f func() error) error {
	if err := p.block(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return p.block()
}
