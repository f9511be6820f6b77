// Package checkpoint holds what the bus has acknowledged of each object: which
// UID, in which version, at which position, deleted or not.
//
// The bus is the truth and this is a copy of it: it is loaded from the bus at the
// start and again from time to time, kept up with every acknowledgement, and
// corrected where the bus says otherwise. It is in memory and never on a disk of
// ours, so there is nothing to keep in step.
//
// A copy may be behind the bus, never ahead of it. Being behind is harmless: the
// bus refuses what is published upon a wrong expectation, and says what it holds.
package checkpoint

import (
	"context"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Source reads from the bus the last event of every object of our cluster, whole
// or with an error: never only a part without one.
type Source interface {
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
}

// Checkpoint is safe for use by several goroutines. Make one with [New].
type Checkpoint struct {
	mu      sync.RWMutex
	entries table
	touched map[event.Key]struct{} // written since a load began; nil while none runs
	lost    int                    // objects that exist, of which the last load found nothing any more
	loaded  time.Time              // when the last load began, or when it was made, by the wall clock

	loading sync.Mutex // held for the whole of a load
}

// New makes an empty checkpoint.
func New() *Checkpoint { return &Checkpoint{entries: newTable(0), loaded: wallClock()} }

// Get gives what the bus has acknowledged of key, the zero value for nothing.
func (c *Checkpoint) Get(key event.Key) event.Acked {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.get(key)
}

// Put records what the bus holds of key; the zero value says that it holds
// nothing.
func (c *Checkpoint) Put(key event.Key, a event.Acked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.touched != nil {
		c.touched[key] = struct{}{}
	}
	c.entries.put(key, a)
}

// Age is how long ago it was last read from the bus, or made.
func (c *Checkpoint) Age() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return wallClock().Sub(c.loaded)
}

// Lost is how many existing objects the bus had events of before it was last read, and
// then had none.
func (c *Checkpoint) Lost() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.lost
}

// wallClock has no monotonic part, which stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// Len is the number of objects that the bus holds an event of.
func (c *Checkpoint) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.len()
}

// Epoch is the highest epoch of any entry.
func (c *Checkpoint) Epoch() uint16 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.epoch()
}

// Of gives the entries of one resource as they are when it is called.
func (c *Checkpoint) Of(gr schema.GroupResource) iter.Seq2[event.Key, event.Acked] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	type pair struct {
		key   event.Key
		acked event.Acked
	}
	var of []pair
	for k := range c.entries.keys() {
		if k.GroupResource() == gr {
			of = append(of, pair{k, c.entries.get(k)})
		}
	}
	return func(yield func(event.Key, event.Acked) bool) {
		for _, p := range of {
			if !yield(p.key, p.acked) {
				return
			}
		}
	}
}

// Resources gives the resources of which there are entries, in no order.
func (c *Checkpoint) Resources() []schema.GroupResource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen := map[schema.GroupResource]bool{}
	var all []schema.GroupResource
	for k := range c.entries.keys() {
		if gr := k.GroupResource(); !seen[gr] {
			seen[gr] = true
			all = append(all, gr)
		}
	}
	return all
}

// Load replaces what is known by what the bus says, as a whole or, on an error,
// not at all. What is written by Put while it runs is newer and stays.
func (c *Checkpoint) Load(ctx context.Context, from Source) error {
	c.loading.Lock()
	defer c.loading.Unlock()

	c.mu.Lock()
	c.touched = map[event.Key]struct{}{}
	size := c.entries.len()
	c.mu.Unlock()
	begun := wallClock()

	loaded := newTable(size)
	err := from.Load(ctx, func(k event.Key, a event.Acked) error {
		failpoint.Hit("loading")
		loaded.put(k, a)
		return nil
	})

	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepDigests(loaded)
	touched := c.touched
	c.touched = nil
	if err != nil {
		return err
	}
	for k := range touched {
		loaded.put(k, c.entries.get(k))
	}
	c.lost = 0
	for k := range c.entries.keys() {
		if c.entries.get(k).Live() && loaded.get(k).UID == "" {
			c.lost++
		}
	}
	c.entries, c.loaded = loaded, begun
	return nil
}

// keepDigests takes over the digests of events that are still the last: where fields have
// come to be dropped, or are not any more, it was found out what the bus has.
func (c *Checkpoint) keepDigests(loaded table) {
	for k := range loaded.keys() {
		was, is := c.entries.get(k), loaded.get(k)
		if was.Digest == is.Digest {
			continue
		}
		digest := was.Digest
		was.Digest, was.Stored = is.Digest, is.Stored
		if was == is {
			is.Digest = digest
			loaded.put(k, is)
		}
	}
}
