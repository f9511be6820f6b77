package progress

import (
	"sync"
	"sync/atomic"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Count counts, by namespace, the objects that the handler knows, so that metrics and readiness
// checks need not list the objects. The zero value is ready to use.
type Count struct {
	of sync.Map // by namespace, a *tally
}

type tally struct {
	all      atomic.Int64
	selected atomic.Int64 // objects that the filter selects
}

// Change updates the counts for a change of an object. before or after is nil if the object did not
// exist. The caller serializes the calls.
func (c *Count) Change(before, after *event.Object) {
	if before != nil && after != nil && before.Namespace == after.Namespace && before.Unselected == after.Unselected {
		return
	}
	c.add(after, 1) // first, so that no count is too low in between
	c.add(before, -1)
}

func (c *Count) add(o *event.Object, n int64) {
	if o == nil {
		return
	}
	at := c.in(o.Namespace)
	if at == nil {
		at = new(tally)
		c.of.Store(o.Namespace, at)
	}
	if !o.Unselected {
		at.selected.Add(n)
	}
	if at.all.Add(n) == 0 && at.selected.Load() == 0 {
		c.of.Delete(o.Namespace)
	}
}

func (c *Count) in(namespace string) *tally {
	at, _ := c.of.Load(namespace)
	is, _ := at.(*tally)
	return is
}

// In returns the number of objects in a namespace.
func (c *Count) In(namespace string) int {
	if at := c.in(namespace); at != nil {
		return int(at.all.Load())
	}
	return 0
}

// None reports whether the handler knows no object, selected or not.
func (c *Count) None() bool {
	for _, at := range c.of.Range {
		if at.(*tally).all.Load() > 0 {
			return false
		}
	}
	return true
}

// Selected returns the number of objects that the filter selects in the matching namespaces.
func (c *Count) Selected(namespace func(string) bool) int {
	n := int64(0)
	for name, at := range c.of.Range {
		if namespace(name.(string)) {
			n += at.(*tally).selected.Load()
		}
	}
	return int(n)
}
