package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Purger removes the events of an object from the bus, up to and including a position. It keeps
// later events. If it returns [event.ErrNewest], it cannot remove the events yet.
type Purger interface {
	Purge(ctx context.Context, k event.Key, upTo uint64) error
}

// Retention purges the events of objects that were deleted long ago. So the size of the bus depends
// on the size of the cluster, not on the cluster's age. Each delete that is kept takes memory in
// the forwarder and on the bus. If too many deletes are kept, Retention purges the oldest ones
// early.
//
// Retention keeps every delete for at least five minutes, or for After if that is shorter. By then,
// no watch still shows the object, and no create from a stale leader can still arrive over a dead
// connection. The bus refuses such a create only while it has events of the object.
//
// An object that is recreated during a purge is safe in either order. If the bus stores the create
// before the purge, the create is after the position and stays. If the purge is first, the bus
// refuses the create, because the create expects the position of the delete. The forwarder then
// decides again, with no event of the object on the bus.
//
// Retention purges nothing while the bus might have lost events since the last load. The bus might have
// lost a delete and still show the object. Purges continue until the connection to the bus notices
// the possible loss, which can take some seconds after an election in a cluster of NATS servers.
//
// Retention keeps the last event with the highest epoch of a resource. The epoch is stored nowhere
// else, and events with a lower epoch would sort before the events that subscribers have received.
type Retention struct {
	Checkpoint *Checkpoint
	Bus        Purger
	After      time.Duration // minimum age of a delete, from the time the bus stored it
	Max        int           // maximum number of deletes that are kept for After; 0 for no limit
	Now        func() time.Time
	Log        *slog.Logger

	early  atomic.Int64 // deletes purged before After
	warned time.Time    // when Run last logged a warning about such deletes
}

var errPossibleLosses = errors.New("the bus might have lost events since the last read of the checkpoint")

const (
	minEarlyAge   = 5 * time.Minute  // minimum age of a delete that is purged before After
	countInterval = 10 * time.Second // interval of comparisons with Max
	warnInterval  = time.Hour        // minimum time between warnings about deletes purged before After
)

// Run purges until ctx ends. The interval is a tenth of After, but at least one second and at most
// one hour. While too many deletes are kept, the interval is at most ten seconds.
func (r *Retention) Run(ctx context.Context) {
	ticker := time.NewTicker(min(max(r.After/10, time.Second), time.Hour))
	defer ticker.Stop()
	count := time.NewTicker(countInterval)
	defer count.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-count.C:
			if !r.tooMany() {
				continue
			}
		}
		before := r.early.Load()
		purged, err := r.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.Log.Warn("purge of deleted objects failed, retrying", "purged", purged, "err", err)
		case purged > 0:
			r.Log.Info("events of deleted objects purged", "objects", purged)
		}
		if early := r.early.Load() - before; early > 0 && r.Now().Sub(r.warned) >= warnInterval {
			r.warned = r.Now()
			r.Log.Warn("too many deleted objects, purging the oldest before the end of their retention", "objects", early, "max", r.Max)
		}
	}
}

func (r *Retention) tooMany() bool { return r.Max > 0 && r.Checkpoint.term.Deletes() > r.Max }

// Once purges the deletes that are due. If more than Max deletes remain, it then purges the oldest
// of them until an eighth of Max is free. It returns the number of purged objects. It continues after
// an error of the bus and returns the first error.
func (r *Retention) Once(ctx context.Context) (purged int, first error) {
	now := r.Now()
	purged, first = r.purge(ctx, deletedBefore(r.Checkpoint.term, now.Add(-r.After).UnixMilli()))
	if ctx.Err() != nil || !r.tooMany() {
		return purged, first
	}
	early, err := r.purge(ctx, surplus(r.Checkpoint.term, r.Max-r.Max/8, now.Add(-min(r.After, minEarlyAge)).UnixMilli()))
	r.early.Add(int64(early))
	return purged + early, cmp.Or(first, err)
}

func (r *Retention) purge(ctx context.Context, due map[event.Key]event.Acked) (purged int, first error) {
	for _, k := range slices.SortedFunc(maps.Keys(due), event.Key.Compare) {
		a := due[k]
		if _, known := r.Checkpoint.Losses(); !known {
			return purged, cmp.Or(first, errPossibleLosses)
		}
		if r.Checkpoint.term.HoldsEpoch(k.GroupResource(), a) || r.Checkpoint.term.Get(k) != a {
			continue
		}
		failpoint.Hit("before-purge")
		err := r.Bus.Purge(ctx, k, a.Position)
		switch {
		case err == nil:
			r.Checkpoint.term.Replace(k, a, event.Acked{})
			purged++
		case ctx.Err() != nil:
			return purged, cmp.Or(first, err)
		case !errors.Is(err, event.ErrNewest):
			first = cmp.Or(first, err)
		}
	}
	return purged, first
}

// deletedBefore returns the deletes that the bus stored at or before a time, in Unix milliseconds.
// It leaves out foreign entries, because the event on the bus might show an object whose delete has
// not been published yet.
func deletedBefore(acked *ledger.Term, before int64) map[event.Key]event.Acked {
	due := map[event.Key]event.Acked{}
	for k, a := range acked.Removals() {
		if !a.Foreign && a.Time != 0 && a.Time <= before {
			due[k] = a
		}
	}
	return due
}
