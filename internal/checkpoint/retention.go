package checkpoint

import (
	"context"
	"log/slog"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Purger removes an object's events from the bus up to and including a position;
// later ones stay.
type Purger interface {
	Purge(ctx context.Context, k event.Key, upTo uint64) error
}

// Retention removes what the bus holds of objects that were deleted long ago, so
// that the bus stays as large as the cluster.
//
// An object recreated meanwhile comes out right whichever is first. If its create
// is stored before the purge, it is later than the position and stays. If after,
// it expected the delete's position, is refused, and is decided again upon a bus
// that holds nothing of it.
//
// The last event of the highest epoch stays: the epoch is nowhere else, and events of a
// lower one would seem to be earlier than what subscribers have seen.
type Retention struct {
	Checkpoint *Checkpoint
	Bus        Purger
	After      time.Duration // since the bus stored the delete
	Now        func() time.Time
	Log        *slog.Logger
}

// Run purges at intervals until ctx ends.
func (r *Retention) Run(ctx context.Context) {
	ticker := time.NewTicker(min(max(r.After/10, time.Second), time.Hour))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		purged, err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.Log.Warn("events of deleted objects could not be purged; will be tried again", "purged", purged, "err", err)
		case purged > 0:
			r.Log.Info("events of deleted objects purged", "objects", purged)
		}
	}
}

// Once purges what is due now, and tells of how many objects.
func (r *Retention) Once(ctx context.Context) (purged int, err error) {
	before := r.Now().Add(-r.After).Unix()
	for k, a := range r.Checkpoint.deleted() {
		if a.Stored == 0 || int64(a.Stored) > before || r.Checkpoint.isEpoch(a) {
			continue
		}
		failpoint.Hit("before-purge")
		if err := r.Bus.Purge(ctx, k, a.Position); err != nil {
			return purged, err
		}
		r.Checkpoint.forget(k, a)
		purged++
	}
	return purged, nil
}

// deleted gives the entries of deleted objects.
func (c *Checkpoint) deleted() map[event.Key]event.Acked {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := map[event.Key]event.Acked{}
	for k := range c.entries.keys() {
		if a := c.entries.get(k); a.Deleted {
			all[k] = a
		}
	}
	return all
}

// isEpoch tells whether an entry is the only one of an epoch that is the highest.
func (c *Checkpoint) isEpoch(a event.Acked) bool {
	if a.Epoch == 0 {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	of := 0
	for k := range c.entries.keys() {
		switch e := c.entries.get(k).Epoch; {
		case e > a.Epoch:
			return false
		case e == a.Epoch:
			of++
		}
	}
	return of == 1
}

// forget removes an entry unless it has changed.
func (c *Checkpoint) forget(k event.Key, a event.Acked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries.get(k) != a {
		return
	}
	if c.touched != nil {
		c.touched[k] = struct{}{}
	}
	c.entries.put(k, event.Acked{})
}
