package checkpoint

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Cluster is the other side of a comparison.
type Cluster interface {
	// Reconcile compares what the bus shows of one resource with what is there,
	// and enqueues every key that differs. It is to be tried again on an error.
	Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error
	// EnqueueAll enqueues every key of the cluster.
	EnqueueAll()
}

// Reconciler compares the checkpoint with the cluster, resource by resource: when
// asked to, and all of them after each time the checkpoint has been read again
// from the bus. It finds what no watch reports: deletes that happened while
// nobody watched, and events that the bus has lost.
type Reconciler struct {
	checkpoint *Checkpoint
	source     Source // nil on a bus that cannot be read
	cluster    Cluster
	refresh    time.Duration
	log        *slog.Logger

	mu    sync.Mutex
	due   map[schema.GroupResource]bool
	awake chan struct{} // has a token when due may not be empty
	again chan struct{} // has a token when the checkpoint is to be read again

	failed map[schema.GroupResource]bool // to be due again after a pause; only Run touches it
}

// NewReconciler makes a reconciler that does nothing until Run. Refresh is how
// often the checkpoint is read again from the bus. Source is nil for a bus that
// cannot be read back.
func NewReconciler(c *Checkpoint, source Source, cluster Cluster, refresh time.Duration, log *slog.Logger) *Reconciler {
	return &Reconciler{
		checkpoint: c, source: source, cluster: cluster, refresh: refresh, log: log,
		due: map[schema.GroupResource]bool{}, awake: make(chan struct{}, 1), again: make(chan struct{}, 1),
		failed: map[schema.GroupResource]bool{},
	}
}

// The pause after a comparison that failed, and the longest that it grows to
// while one fails.
const (
	retryAfter   = 5 * time.Second
	retryLongest = 2 * time.Minute
)

// Ask has a resource compared soon. It does not block.
func (r *Reconciler) Ask(gr schema.GroupResource) {
	r.mu.Lock()
	r.due[gr] = true
	r.mu.Unlock()
	select {
	case r.awake <- struct{}{}:
	default:
	}
}

// Refresh has the checkpoint read again from the bus soon, and then everything
// compared. It does not block.
func (r *Reconciler) Refresh() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// Run compares until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	refresh := time.NewTicker(r.refresh)
	defer refresh.Stop()
	var retry <-chan time.Time // nil while none has failed
	pause := retryAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.awake:
		case <-retry:
			retry = nil
			for gr := range r.failed {
				r.Ask(gr)
			}
		case <-refresh.C:
			r.reload(ctx)
		case <-r.again:
			r.reload(ctx)
		}
		r.compareDue(ctx)
		switch {
		case len(r.failed) == 0:
			retry, pause = nil, retryAfter
		case retry == nil:
			retry = time.After(pause)
			pause = min(2*pause, retryLongest)
		}
	}
}

// reload reads the checkpoint again and has everything compared with it.
func (r *Reconciler) reload(ctx context.Context) {
	if r.source != nil {
		if err := r.checkpoint.Load(ctx, r.source); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("the checkpoint could not be read again from the bus; will be tried again", "err", err)
				time.AfterFunc(retryAfter, r.Refresh)
			}
			return
		}
		if lost := r.checkpoint.Lost(); lost > 0 {
			r.log.Warn("the bus has lost the events of objects that exist; their present states are written again", "objects", lost)
		}
	}
	r.cluster.EnqueueAll()
	for _, gr := range r.checkpoint.Resources() {
		r.Ask(gr)
	}
}

func (r *Reconciler) compareDue(ctx context.Context) {
	r.mu.Lock()
	due := r.due
	r.due = map[schema.GroupResource]bool{}
	r.mu.Unlock()
	for gr := range due {
		err := r.cluster.Reconcile(ctx, gr, r.checkpoint.Of(gr))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.log.Warn("comparing the bus with the cluster failed; will be tried again", "resource", gr.String(), "err", err)
			r.failed[gr] = true
		default:
			delete(r.failed, gr)
		}
	}
}
