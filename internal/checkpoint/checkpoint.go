// Package checkpoint holds what the bus has acknowledged of each object: which
// UID, in which version, at which position, deleted or not.
//
// The bus is the truth and this is a copy of it: it is loaded from the bus at the
// start, kept up with every acknowledgement, and corrected where the bus says
// otherwise. It is in memory and never on a disk of ours, so there is nothing to
// keep in step.
package checkpoint

import (
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Checkpoint is safe for use by several goroutines. Make one with [New].
type Checkpoint struct {
	mu      sync.RWMutex
	entries map[event.Key]event.Acked
}

// New makes an empty checkpoint.
func New() *Checkpoint { return &Checkpoint{entries: map[event.Key]event.Acked{}} }

// Get gives what the bus has acknowledged of key, the zero value for nothing.
func (c *Checkpoint) Get(key event.Key) event.Acked {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[key]
}

// Put records what the bus holds of key; the zero value says that it holds
// nothing.
func (c *Checkpoint) Put(key event.Key, a event.Acked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a == (event.Acked{}) {
		delete(c.entries, key)
		return
	}
	c.entries[key] = a
}

// Len is the number of objects that the bus holds an event of.
func (c *Checkpoint) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}
