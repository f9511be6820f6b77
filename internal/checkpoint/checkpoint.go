// Package checkpoint holds the last event of each object that the bus has acknowledged: its
// UID, version and position, and whether it is a delete.
//
// The bus is the source of truth and the checkpoint is a copy in memory. The forwarder
// loads it from the bus at startup, reloads it periodically, updates it with every
// acknowledgement, and corrects it when the bus refuses a publish. It is never on disk, so
// nothing has to be kept in sync.
//
// The copy can be behind the bus, never ahead of it. When the forwarder publishes, a stale
// entry is harmless: the bus refuses a message that expects another event than it holds,
// and returns the event that it holds. When the forwarder decides to publish nothing, a
// stale entry stays until the next load. So a load covers everything that the bus held when
// the load began; see [Source].
package checkpoint

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Source reads the last event of every object of our cluster from the bus.
//
// Load returns an error unless it has yielded all of them. For each object it yields the
// last event that the bus held when Load began, or a later one.
type Source interface {
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
}

// Checkpoint is safe for use by several goroutines. Make one with [New].
type Checkpoint struct {
	mu       sync.RWMutex
	entries  *tables
	touched  map[event.Key]struct{} // keys written since the load began; nil while no load runs
	complete bool                   // a load has succeeded
	lost     int                    // existing objects whose events the last load did not find
	loaded   time.Time              // start of the last successful load, or creation; wall clock

	loading sync.Mutex // held for a whole load

	// Refused, if set, gets each event whose epoch a load did not believe. Set it before the
	// first load.
	Refused func(event.Key, event.Acked, error)

	now func() time.Time // wall clock
}

// New returns an empty checkpoint.
func New() *Checkpoint { return NewAt(wallClock) }

// NewAt is New with another clock.
func NewAt(now func() time.Time) *Checkpoint {
	return &Checkpoint{entries: newTables(nil), loaded: now(), now: now}
}

// Get returns the entry of key. The zero value means that the bus holds nothing.
func (c *Checkpoint) Get(key event.Key) event.Acked {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.get(key)
}

// Put sets the entry of key. The zero value means that the bus holds nothing.
func (c *Checkpoint) Put(key event.Key, a event.Acked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.touched != nil {
		c.touched[key] = struct{}{}
	}
	c.entries.put(key, a)
}

// Replace sets the entry of key from was to is if the entry still equals was. It reports
// whether it did.
func (c *Checkpoint) Replace(key event.Key, was, is event.Acked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries.get(key) != was {
		return false
	}
	if c.touched != nil {
		c.touched[key] = struct{}{}
	}
	c.entries.put(key, is)
	return true
}

// Age returns the time since the last successful load began, or since New.
func (c *Checkpoint) Age() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now().Sub(c.loaded)
}

// Lost returns the number of existing objects whose events the bus held before the last
// load, and no longer held then.
func (c *Checkpoint) Lost() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.lost
}

// wallClock strips the monotonic clock reading, because the monotonic clock stops while the
// machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// Len returns the number of objects that the bus holds an event of.
func (c *Checkpoint) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.size
}

// Deletes returns the number of deleted objects that the bus holds an event of.
func (c *Checkpoint) Deletes() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.deletes
}

// Epoch returns the highest epoch of all entries.
func (c *Checkpoint) Epoch() uint16 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries.epoch()
}

// Epochs returns the highest epoch of each resource.
func (c *Checkpoint) Epochs() map[schema.GroupResource]uint16 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	epochs := make(map[schema.GroupResource]uint16, len(c.entries.byResource))
	for gr, t := range c.entries.byResource {
		epochs[gr] = t.highest
	}
	return epochs
}

// Entries iterates over the entries of one resource. It yields each entry once, with its
// value at that moment. The caller can write to the checkpoint meanwhile.
func (c *Checkpoint) Entries(gr schema.GroupResource) iter.Seq2[event.Key, event.Acked] {
	return func(yield func(event.Key, event.Acked) bool) {
		c.mu.RLock()
		t := c.entries.byResource[gr]
		c.mu.RUnlock()
		if t == nil {
			return
		}
		_ = walk(&c.mu, t.packed, func(n name, e entry) bool { return yield(n.key(gr), e.unpack()) }) &&
			walk(&c.mu, t.unpacked, func(n name, a event.Acked) bool { return yield(n.key(gr), a) })
	}
}

// Resources returns the resources that have entries, in no particular order.
func (c *Checkpoint) Resources() []schema.GroupResource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.entries.byResource))
}

// Load replaces all entries with those of source. On an error it changes nothing. An entry
// that Put or Replace wrote during the load is newer, and stays.
//
// An event that shows an object in an epoch that no restore explains (see
// [event.MaxEpochJump]) is not believed about its order: every state of the object is later.
//
// From the second load on, an event that is not the one in the checkpoint makes the entry
// foreign, see [event.Acked]. An event at an earlier position does not: the bus lost its
// end.
func (c *Checkpoint) Load(ctx context.Context, source Source) error {
	c.loading.Lock()
	defer c.loading.Unlock()

	c.mu.Lock()
	c.touched = map[event.Key]struct{}{}
	sizes := c.entries.lens()
	c.mu.Unlock()
	start := c.now()

	loaded := newTables(sizes)
	err := source.Load(ctx, func(k event.Key, a event.Acked) error {
		failpoint.Hit("loading")
		loaded.put(k, a)
		return nil
	})
	var lost map[event.Key]struct{}
	if err == nil {
		c.boundEpochs(loaded)
		lost = c.carryOver(loaded)
	}

	// Acknowledgements wait for this lock, so the loop below visits only the keys written
	// during the load.
	c.mu.Lock()
	defer c.mu.Unlock()
	touched := c.touched
	c.touched = nil
	if err != nil {
		return err
	}
	for k := range touched {
		loaded.put(k, c.entries.get(k))
		delete(lost, k)
	}
	c.entries, c.lost, c.loaded, c.complete = loaded, len(lost), start, true
	return nil
}

// carryOver copies into loaded what the bus does not store, marks unexpected events as
// foreign, and returns the existing objects that loaded lacks. Before the first load,
// nothing is unexpected.
func (c *Checkpoint) carryOver(loaded *tables) (lost map[event.Key]struct{}) {
	c.mu.RLock()
	all, known := maps.Clone(c.entries.byResource), c.complete
	c.mu.RUnlock()
	lost = map[event.Key]struct{}{}
	carried := 0
	for gr, before := range all {
		after := loaded.byResource[gr]
		if after == nil {
			after = newTable(0)
		}
		carry := func(n name, live, found bool) {
			if found {
				carried++
			} else if live {
				lost[n.key(gr)] = struct{}{}
			}
		}
		walk(&c.mu, before.packed, func(n name, was entry) bool {
			carry(n, !was.state.deleted(), after.carryPacked(n, was, known))
			return true
		})
		walk(&c.mu, before.unpacked, func(n name, was event.Acked) bool {
			carry(n, was.Live(), after.carry(n, was, known))
			return true
		})
	}
	if known && carried < loaded.size {
		c.markUnknown(loaded)
	}
	return lost
}

// markUnknown marks the events of objects that have no entry as foreign.
func (c *Checkpoint) markUnknown(loaded *tables) {
	unknown := map[event.Key]event.Acked{}
	for gr, after := range loaded.byResource {
		isUnknown := func(n name) bool {
			c.mu.RLock()
			defer c.mu.RUnlock()
			before := c.entries.byResource[gr]
			return before == nil || !before.holds(n)
		}
		for n, is := range after.packed {
			if isUnknown(n) {
				unknown[n.key(gr)] = is.unpack()
			}
		}
		for n, is := range after.unpacked {
			if isUnknown(n) {
				unknown[n.key(gr)] = is
			}
		}
	}
	for k, is := range unknown {
		loaded.put(k, event.Acked{}.Before(is))
	}
}
