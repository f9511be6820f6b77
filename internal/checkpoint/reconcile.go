package checkpoint

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// Cluster compares entries of the checkpoint with the Kubernetes cluster.
type Cluster interface {
	// Reconcile compares all entries of one resource with the cluster, and enqueues every key that
	// differs. After an error, the caller retries.
	Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error
	// Confirm does the same for some keys of one resource.
	Confirm(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error
	// EnqueueAll enqueues every key of the cluster.
	EnqueueAll()
}

// Reconciler compares the checkpoint with the cluster, resource by resource. It compares a resource
// on request, and all resources after each reload of the checkpoint from the bus. It finds changes
// that no watch reports: deletes that happened while no forwarder watched, and events that the bus
// lost.
type Reconciler struct {
	checkpoint *Checkpoint
	acked      *ledger.Term
	source     Source // nil if the bus cannot be read
	cluster    Cluster
	refresh    time.Duration
	log        *slog.Logger

	mu     sync.Mutex
	due    map[schema.GroupResource]map[event.Key]bool // the keys to compare, nil for all
	reload bool                                        // a reload of the checkpoint is requested
	wake   chan struct{}                               // has a token if a reload or a comparison might be due
	failed map[schema.GroupResource]Failure            // due again at retryAt; only Once writes

	// Only Once uses the following fields.
	retryAt  time.Time     // zero while no comparison has failed
	delay    time.Duration // before the next retry
	reloadAt time.Time     // zero before the first call
}

// Failure is the error of a resource's last failed comparison. Since is the time when the
// comparisons of the resource began to fail.
type Failure struct {
	Err   error
	Since time.Time
}

// NewReconciler returns a reconciler that does nothing until Run. refresh is the interval between
// reloads of the checkpoint from the bus. source is nil if the bus cannot be read.
func NewReconciler(c *Checkpoint, source Source, cluster Cluster, refresh time.Duration, log *slog.Logger) *Reconciler {
	return &Reconciler{
		checkpoint: c, acked: c.term, source: source, cluster: cluster, refresh: refresh, log: log,
		due: map[schema.GroupResource]map[event.Key]bool{}, wake: make(chan struct{}, 1),
		failed: map[schema.GroupResource]Failure{}, delay: retryDelay,
	}
}

// The delay after a failed comparison doubles with each failure, from retryDelay to
// maxRetryDelay.
const (
	retryDelay    = 5 * time.Second
	maxRetryDelay = 2 * time.Minute
)

// CompareResource schedules a comparison of a resource. It does not block.
func (r *Reconciler) CompareResource(gr schema.GroupResource) {
	r.schedule(func() { r.due[gr] = nil })
}

// CompareKey schedules a comparison of one key. It does not block.
func (r *Reconciler) CompareKey(k event.Key) {
	gr := k.GroupResource()
	r.schedule(func() {
		if keys, due := r.due[gr]; !due {
			r.due[gr] = map[event.Key]bool{k: true}
		} else if keys != nil {
			keys[k] = true
		}
	})
}

// Refresh schedules a reload of the checkpoint from the bus, followed by a comparison of
// all resources. It does not block.
func (r *Reconciler) Refresh() { r.schedule(func() { r.reload = true }) }

func (r *Reconciler) schedule(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run runs the scheduled work until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		timer := time.NewTimer(time.Until(r.Once(ctx, time.Now)))
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Once runs the work that is due, and returns the time of the next reload or retry. Only one call
// may run at a time.
func (r *Reconciler) Once(ctx context.Context, now func() time.Time) (next time.Time) {
	r.mu.Lock()
	reload := r.reload
	r.reload = false
	r.mu.Unlock()
	if r.reloadAt.IsZero() {
		r.reloadAt = now().Add(r.refresh)
	}
	if reload || !now().Before(r.reloadAt) {
		r.reloadAt = now().Add(r.reloadCheckpoint(ctx))
	}
	if !r.retryAt.IsZero() && !now().Before(r.retryAt) {
		r.retryAt = time.Time{}
		for gr := range r.failed {
			r.CompareResource(gr)
		}
	}
	r.compareDue(ctx, now)
	switch {
	case len(r.failed) == 0:
		r.retryAt, r.delay = time.Time{}, retryDelay
	case r.retryAt.IsZero():
		r.retryAt = now().Add(r.delay)
		r.delay = min(2*r.delay, maxRetryDelay)
	}
	if !r.retryAt.IsZero() && r.retryAt.Before(r.reloadAt) {
		return r.retryAt
	}
	return r.reloadAt
}

// reloadCheckpoint reloads the checkpoint and schedules a comparison of all resources. It
// returns the time until the next reload.
func (r *Reconciler) reloadCheckpoint(ctx context.Context) (pause time.Duration) {
	if r.source != nil {
		lost, err := r.checkpoint.Load(ctx, r.source)
		if err != nil {
			if ctx.Err() == nil {
				r.log.Warn("checkpoint reload failed, retrying", "err", err)
			}
			return retryDelay
		}
		if lost > 0 {
			r.log.Warn("the bus lost the last events of objects, publishing their states again", "objects", lost)
		}
	}
	r.cluster.EnqueueAll()
	for _, gr := range r.acked.Resources() {
		r.CompareResource(gr)
	}
	return r.refresh
}

func (r *Reconciler) compareDue(ctx context.Context, now func() time.Time) {
	r.mu.Lock()
	due := r.due
	r.due = map[schema.GroupResource]map[event.Key]bool{}
	r.mu.Unlock()
	for gr, keys := range due {
		var err error
		if keys == nil {
			err = r.cluster.Reconcile(ctx, gr, r.acked.Entries(gr))
		} else {
			err = r.cluster.Confirm(ctx, gr, entriesOf(r.acked, keys))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.fail(gr, err, now())
		case keys == nil:
			r.succeed(gr)
		}
	}
}

// fail logs a failed comparison of a resource and records the failure, so that Once retries.
func (r *Reconciler) fail(gr schema.GroupResource, err error, now time.Time) {
	r.log.Warn("comparing the bus with the cluster failed, retrying", "resource", gr.String(), "err", refusal.Explain(err))
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, again := r.failed[gr]; again {
		now = before.Since
	}
	r.failed[gr] = Failure{err, now}
}

func (r *Reconciler) succeed(gr schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, gr)
}

// Failing returns the resources whose last comparison failed. It does not block.
func (r *Reconciler) Failing() map[schema.GroupResource]Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.failed)
}

// entriesOf iterates over the entries of keys, with the zero value for a key without an
// entry.
func entriesOf(acked *ledger.Term, keys map[event.Key]bool) iter.Seq2[event.Key, event.Acked] {
	return func(yield func(event.Key, event.Acked) bool) {
		for k := range keys {
			if !yield(k, acked.Get(k)) {
				return
			}
		}
	}
}
