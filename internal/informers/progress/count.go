package progress

import (
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Count counts the objects that the handler knows by namespace, so that metrics and readiness checks
// need not list the objects. The zero value is ready to use.
type Count struct {
	mu sync.Mutex
	of map[string]tally
}

type tally struct {
	all      int
	selected int // objects that the filter selects
}

// Change updates the counts for a change of an object. before or after is nil if the object did not
// exist.
func (c *Count) Change(before, after *event.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(before, -1)
	c.add(after, 1)
}

func (c *Count) add(o *event.Object, n int) {
	if o == nil {
		return
	}
	if c.of == nil {
		c.of = map[string]tally{}
	}
	at := c.of[o.Namespace]
	if at.all += n; !o.Unselected {
		at.selected += n
	}
	if c.of[o.Namespace] = at; at == (tally{}) {
		delete(c.of, o.Namespace)
	}
}

// In returns the number of objects in a namespace.
func (c *Count) In(namespace string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[namespace].all
}

// None reports whether the handler knows no object, selected or not.
func (c *Count) None() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.of {
		if at.all > 0 {
			return false
		}
	}
	return true
}

// Selected returns the number of objects that the filter selects in the matching namespaces.
func (c *Count) Selected(namespace func(string) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for name, at := range c.of {
		if namespace(name) {
			n += at.selected
		}
	}
	return n
}
