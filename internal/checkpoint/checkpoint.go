// Package checkpoint keeps the ledger in step with the bus. It loads the last event of each object
// from the bus at the start of a term and at regular intervals, and schedules comparisons with the
// cluster. It purges the events of deleted objects after the retention period.
//
// The bus is the checkpoint. The loaded events are kept in [ledger.Term], not on disk.
package checkpoint

import (
	"context"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Source reads the last event of every object of this cluster from the bus.
//
// For each object, Load yields the last event that the bus had when Load began, or a later event.
// An older event could keep the forwarder from publishing a change until the next load. If Load
// can't yield the events of all objects, it returns an error.
type Source interface {
	Load(ctx context.Context, yield func(event.Key, event.Acked) error) error
}

// Checkpoint loads the last event of each object from the bus into a term of the ledger. It is safe
// for concurrent use. Make one with [New].
type Checkpoint struct {
	term    *ledger.Term
	loading sync.Mutex // held for a whole load

	mu     sync.Mutex
	loaded time.Time // when the last successful load began, or New was called; wall clock
	losses uint64    // the result of PossibleLosses at the start of the last successful load

	// Refused is called with each event whose epoch a load rejects. Set it before the first load.
	Refused func(event.Key, event.Acked, error)

	// PossibleLosses is the method of [publish.Bus]. Set it before the first load.
	PossibleLosses func() uint64

	now func() time.Time // wall clock
}

// New returns the checkpoint of a term.
func New(t *ledger.Term) *Checkpoint { return NewAt(t, wallClock) }

// NewAt is like New, but with another clock.
func NewAt(t *ledger.Term, now func() time.Time) *Checkpoint {
	return &Checkpoint{term: t, loaded: now(), now: now, Refused: func(event.Key, event.Acked, error) {}, PossibleLosses: func() uint64 { return 0 }}
}

// Losses returns the number of events that the bus is known to have lost. known is false while the
// bus might have lost more events since the last load.
func (c *Checkpoint) Losses() (lost uint64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term.LostTotal(), c.PossibleLosses() == c.losses
}

// LossesAtLoad returns the result of PossibleLosses at the start of the last successful load.
func (c *Checkpoint) LossesAtLoad() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.losses
}

// Age returns the time since the last successful load began, or since New.
func (c *Checkpoint) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Sub(c.loaded)
}

// wallClock strips the monotonic clock reading, because the monotonic clock stops while the
// machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// Load replaces the events in the term with the events of source. It returns the number of objects
// whose last event the bus has lost. If it returns an error, it has changed nothing. See
// [ledger.Load.Finish].
func (c *Checkpoint) Load(ctx context.Context, source Source) (lost int, err error) {
	c.loading.Lock()
	defer c.loading.Unlock()
	start, losses, load := c.now(), c.PossibleLosses(), c.term.StartLoad()
	if err := source.Load(ctx, func(k event.Key, a event.Acked) error {
		failpoint.Hit("loading")
		load.Put(k, a)
		return nil
	}); err != nil {
		load.Cancel()
		return 0, err
	}
	lost = load.Finish(c.Refused)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.losses = start, losses
	return lost, nil
}
