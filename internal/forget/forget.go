// Package forget retires a cluster whose forwarder has stopped for good. It publishes a delete of every
// object of the cluster. Then it records in the claim of the cluster name that the cluster is forgotten.
//
// The package guarantees that the bus stores each delete once, directly after the last event of its
// object. The delete has the last state on the bus, because it takes the same path as a delete by
// the forwarder. The package sends no request to an API server. You can interrupt [Run] and call it
// again.
//
// The package can't prevent a forwarder of the cluster from running. A running forwarder publishes its
// objects again. If both write the same object at the same time, Run returns [ErrWritten]. On Kafka, the
// brokers refuse the writer whose takeover was first.
package forget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// ErrWritten means that another process writes events of the cluster.
var ErrWritten = errors.New("another process is writing events of the cluster: stop its forwarder first")

// Config configures [Run]. Every field except Deleting is required.
type Config struct {
	Bus       publish.Bus   // opened as the writer for the cluster name
	Builder   event.Builder // builds events of the cluster
	InFlight  int           // maximum number of deletes in flight
	Retention time.Duration // how long to keep the events of a deleted object
	Now       func() time.Time
	Logger    *slog.Logger
	Deleting  *longwork.Counter // counts the deleted objects
}

// Result is the result of Run.
type Result struct {
	Deleted int64 // number of objects deleted
	Purged  int   // number of objects whose events were purged because the retention period had passed
	Claimed bool  // the claim of the cluster name says that the cluster is forgotten
}

// Run publishes a delete of every object of the cluster, and retries deletes that the bus doesn't
// acknowledge. When the bus has acknowledged all of them, Run purges the events of objects whose
// retention period has passed, and records in the claim that the cluster is forgotten. Run ends
// early if ctx ends, another process writes one of the objects, or the connection closes
// permanently. It deletes nothing if a later release wrote to the bus in an unknown format.
func Run(ctx context.Context, c Config) (Result, error) {
	l := ledger.New()
	r := &retirement{Config: c, ledger: l, known: l.NewTerm()}
	loaded := checkpoint.New(r.known)
	loaded.PossibleLosses = c.Bus.PossibleLosses
	if _, err := loaded.Load(ctx, c.Bus); err != nil {
		return Result{}, fmt.Errorf("load the last events of the cluster: %w", err)
	}
	claim, err := c.Bus.LastClaim(ctx)
	if err == nil {
		err = claim.Refusal()
	}
	if err != nil {
		return Result{}, fmt.Errorf("read the claim of the cluster name: %w", err)
	}
	err = r.deleteCertainly(ctx, loaded)
	result := Result{Deleted: r.deleted.Load()}
	if err != nil {
		return result, err
	}
	retention := checkpoint.Retention{Checkpoint: loaded, Bus: c.Bus, After: c.Retention, Now: c.Now, Log: c.Logger}
	if result.Purged, err = retention.Once(ctx); err != nil {
		return result, fmt.Errorf("purge the events of deleted objects: %w", err)
	}
	result.Claimed, err = r.claim(ctx, result.Deleted > 0)
	return result, err
}

// retirement is the state of one Run.
type retirement struct {
	Config
	ledger  *ledger.Ledger
	known   *ledger.Term
	deleted atomic.Int64
}

// deleteCertainly calls deleteAll until the bus cannot have lost a delete since the last load.
func (r *retirement) deleteCertainly(ctx context.Context, loaded *checkpoint.Checkpoint) error {
	for {
		if err := r.deleteAll(ctx); err != nil {
			return err
		}
		if _, known := loaded.Losses(); known {
			return nil
		}
		if _, err := loaded.Load(ctx, r.Bus); err != nil {
			return fmt.Errorf("load the last events of the cluster again: %w", err)
		}
	}
}

// deleteAll deletes all live objects on the bus and repairs foreign events. It retries failed deletes.
// It ends early if another process writes one of the objects.
func (r *retirement) deleteAll(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := forward.New(forward.Config{
		Informers: departed{r.ledger, r.Now}, Ledger: r.known, Publish: r.publish(stop), History: r.Bus,
		Recheck: func(event.Key) {}, Lost: func() bool { return false }, // no informer or later event can provide another state
		Builder: r.Builder, Go: func(f func()) { go f() }, Now: r.Now, Logger: r.Logger, Registerer: prometheus.NewRegistry(),
	})
	var keys []event.Key
	for _, gr := range r.known.Resources() {
		for k, acked := range r.known.Entries(gr) {
			if acked.Live() || acked.Foreign {
				keys = append(keys, k)
			}
		}
	}
	r.Deleting.Begin()
	defer r.Deleting.End()
	r.Deleting.Expect(int64(len(keys)))
	var all errgroup.Group
	all.SetLimit(max(1, r.InFlight))
	for _, k := range keys {
		all.Go(func() error { return r.delete(ctx, f, k) })
	}
	return all.Wait()
}

// publish returns a function that publishes and counts deletes. The function stops the run if the bus
// has an event that Run hasn't loaded, or if the connection to the bus is permanently closed.
func (r *retirement) publish(stop context.CancelCauseFunc) forward.Publish {
	return func(ctx context.Context, m *event.Message, done func(uint64, error)) {
		r.Bus.Publish(ctx, m, func(position uint64, err error) {
			var conflict *publish.ConflictError
			switch {
			case err == nil:
				r.deleted.Add(1)
			case errors.As(err, &conflict) && conflict.Bus != (event.Acked{}):
				stop(fmt.Errorf("%w: %w", ErrWritten, err))
			case errors.Is(err, publish.ErrGone):
				stop(err)
			}
			done(position, err)
		})
	}
}

// delete publishes the delete of one object, and returns when the bus has acknowledged it or ctx ends.
func (r *retirement) delete(ctx context.Context, f *forward.Forwarder, k event.Key) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 1 << 30, Cap: 5 * time.Second}
	for {
		type outcome struct {
			again bool
			err   error
		}
		done := make(chan outcome, 1)
		f.Sync(ctx, k, func(again bool, err error) { done <- outcome{again, err} })
		o := <-done
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case o.err == nil && !o.again:
			r.Deleting.Add(1)
			return nil
		case o.err == nil:
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// claim publishes the claim of a forgotten cluster, unless the bus already has that claim and this run
// deleted nothing. A cluster name without a claim has no owner, so claim publishes nothing for it. claim
// reports whether the bus has a claim.
func (r *retirement) claim(ctx context.Context, deleted bool) (bool, error) {
	c, err := r.Bus.LastClaim(ctx)
	if err != nil || c.UID == "" || !c.Forgotten.IsZero() && !deleted {
		return c.UID != "", err
	}
	now := r.Now()
	c.Claimed, c.Forgotten, c.Settings = now, now, nil
	m, err := r.Builder.ClusterClaimed(c)
	if err == nil {
		err = publish.Put(ctx, r.Bus, m)
	}
	return err == nil, err
}

// departed stands in for the informers of the retired cluster. It reports every object on the bus as
// deleted.
type departed struct {
	ledger *ledger.Ledger
	now    func() time.Time
}

var _ forward.Informers = departed{}

// Lookup implements [forward.Informers].
func (d departed) Lookup(k event.Key) event.View {
	now := d.now()
	v := event.View{Observed: now, Cause: event.CauseReconcile}
	d.ledger.Describe(k, &v)
	v.Epoch, v.Outlived = v.Acked.Epoch, event.Outlived{Position: v.Acked.Position}
	if v.Acked.UID != "" {
		v.Tombstones = []event.Tombstone{{UID: v.Acked.UID, Confirmed: true, Contradicts: v.Acked.Position, Observed: now, Cause: event.CauseReconcile}}
	}
	return v
}

// Reported implements [forward.Informers].
func (d departed) Reported(event.Key) string { return "" }

// Interest implements [forward.Informers].
func (d departed) Interest(event.Key) ledger.Interest { return ledger.Interest{} }

// Shown implements [forward.Informers].
func (d departed) Shown(event.Key) string { return "" }

// Settled implements [forward.Informers].
func (d departed) Settled(event.Key) {}

// Unpublishable implements [forward.Informers]. It does nothing, because a delete can be published
// without a state.
func (d departed) Unpublishable(event.Key) {}

// Unreported implements [forward.Informers].
func (d departed) Unreported(event.Key) {}
