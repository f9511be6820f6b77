package relay

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/relay/retry"
	"github.com/kuberelay/kuberelay/internal/resolve"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// term is the state of one leadership term: the connection to the bus, the acknowledged states, and
// the events in flight. This state ends with the term, because another process might publish
// afterward. Without leader election, the process has one term.
type term struct {
	*Relay
	bus              *bus.Bus
	queue            *workqueue.Queue
	forwarder        *forward.Forwarder
	acked            *ledger.Term
	checkpoint       *checkpoint.Checkpoint
	reconciler       *checkpoint.Reconciler
	retention        *checkpoint.Retention // nil on a bus that cannot be purged
	builder          event.Builder
	snapshots        snapshots
	resolver         *resolve.Resolver
	metrics          *termRegisterer
	unavailableSince atomic.Int64           // when the bus became unavailable, in Unix nanoseconds; 0 while it is ready
	outage           atomic.Pointer[outage] // the last outage that is over; nil for none
}

// outage is a period in which the bus was unavailable. waiting is the number of keys that became dirty in
// that period.
type outage struct {
	began, ended time.Time
	waiting      int
}

// newTerm opens the bus, loads the checkpoint, and claims the cluster's name. On Kafka, opening the
// bus fences the previous writer. newTerm blocks until it has succeeded, ctx ends, or a retry
// cannot succeed. permit is called before each write. It is nil without leader election.
func (r *Relay) newTerm(ctx context.Context, permit func() error) (_ *term, err error) {
	metrics := &termRegisterer{Registerer: r.Registerer}
	b, err := bus.Open(ctx, bus.Config{
		Settings: r.Settings, Cluster: r.cluster.name, UID: r.cluster.uid, Writer: r.Writer, Permit: permit, WaitFor: r.state.waitFor,
		Server: r.Server, Connections: r.Connections, Takeover: &r.takeover, Loading: &r.loading, Out: r.Out, Logger: r.Logger, Registerer: metrics,
	})
	if err != nil {
		metrics.unregisterAll()
		return nil, err
	}
	t := r.assemble(b, metrics)
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if err := t.load(ctx); err != nil {
		return nil, err
	}
	epoch, err := b.Acquire(ctx, t.acked)
	if err != nil {
		return nil, err
	}
	r.informers.RaiseEpochs(epoch)
	t.queue = newQueue(r.Settings, metrics) // last, because only serve ends the queue's goroutines
	r.term.Store(t)
	return t, nil
}

// assemble connects the parts of a term, except its queue.
func (r *Relay) assemble(b *bus.Bus, metrics *termRegisterer) *term {
	s := r.Settings
	acked := r.ledger.NewTerm()
	t := &term{
		Relay: r, bus: b, acked: acked, checkpoint: checkpoint.New(acked), metrics: metrics,
		builder:   event.Builder{Cluster: r.cluster.name, Data: event.DataForm(s.Content.Data), Reshape: r.shape.Reshape(r.converter)},
		snapshots: snapshots{sessions: map[schema.GroupResource]string{}, finished: map[schema.GroupResource]bool{}},
	}
	t.checkpoint.Refused = func(k event.Key, a event.Acked, err error) {
		gr := k.GroupResource().String() // together with the position, identifies the event on NATS and on Kafka
		b.Invalid.Report(gr, a.Position, err, "resource", gr, "namespace", k.Namespace, "name", k.Name)
	}
	t.checkpoint.PossibleLosses = b.PossibleLosses
	t.checkpoint.Register(metrics)
	var source checkpoint.Source
	if b.Readable {
		source = b
		t.retention = &checkpoint.Retention{
			Checkpoint: t.checkpoint, Bus: b, After: s.Work.DeleteRetention, Now: time.Now, Log: r.Logger,
			Max: cmp.Or(s.Work.MaxDeletes, checkpoint.MaxDeletes(debug.SetMemoryLimit(-1))),
		}
		t.retention.Register(metrics)
	}
	t.reconciler = checkpoint.NewReconciler(t.checkpoint, source, reconciled{t}, s.Work.CheckpointRefresh, r.Logger)
	t.forwarder = forward.New(forward.Config{
		Informers: r.informers, Ledger: acked, Publish: t.publish, History: b,
		Recheck: t.reconciler.CompareKey,
		Lost:    func() bool { return t.checkpoint.Age() < s.Work.DeleteRetention },
		Builder: t.builder, Published: r.Published, Go: func(f func()) { go f() }, Now: time.Now, Logger: r.Logger, Registerer: metrics,
	})
	t.resolver = resolve.New(resolve.Config{
		Informers: r.informers, Checkpoint: acked, Losses: t.checkpoint.Losses, Publish: t.resolved, Compare: t.compare,
		Interval: s.Work.ResolvedInterval, Now: time.Now, Logger: r.Logger,
	})
	metrics.MustRegister(t.resolver)
	return t
}

func newQueue(s config.Config, metrics prometheus.Registerer) *workqueue.Queue {
	c := bus.LimitsOf(s)
	c.Workers, c.BaseDelay, c.MaxDelay = s.Work.Workers, s.Work.RetryBaseDelay, s.Work.RetryMaxDelay
	c.MetricsProvider = operations.WorkqueueMetrics(metrics)
	return workqueue.New(c)
}

// close ends the term and closes the connection to the bus. Events in flight fail.
func (t *term) close() error {
	t.term.Store(nil)
	defer t.acked.End()
	defer t.metrics.unregisterAll()
	return t.bus.Close()
}

// load loads the checkpoint from the bus. It blocks until it succeeds, ctx ends, or a retry cannot
// succeed.
func (t *term) load(ctx context.Context) error {
	if !t.bus.Readable {
		return nil
	}
	return retry.Until(ctx, func() error {
		start := time.Now()
		if _, err := t.checkpoint.Load(ctx, t.bus); err != nil {
			return err
		}
		t.raiseEpochs()
		t.Logger.Info("checkpoint loaded from the bus", "objects", t.acked.Len(), "seconds", time.Since(start).Seconds())
		return nil
	}, func(err error) error {
		if errors.Is(err, publish.ErrGone) {
			return err
		}
		t.state.waitFor(func() error { return err })
		t.Logger.Warn("checkpoint load failed, retrying", "err", err)
		return nil
	})
}

// raiseEpochs raises the epochs of the informers to those of the events on the bus.
func (t *term) raiseEpochs() {
	for gr, epoch := range t.acked.Epochs() {
		t.informers.RaiseEpoch(gr, epoch)
	}
}

// reconciled implements the reconciler's view of the cluster.
type reconciled struct{ *term }

var _ checkpoint.Cluster = reconciled{}

// Reconcile implements [checkpoint.Cluster].
func (c reconciled) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	var found reconcile.Comparison
	var err error
	c.resolver.Comparing(gr, func() bool {
		found, err = c.comparer.Reconcile(ctx, gr, acked)
		return err == nil && found.Decided()
	})
	return c.report(gr, found, err)
}

// Confirm implements [checkpoint.Cluster].
func (c reconciled) Confirm(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	found, err := c.comparer.Confirm(ctx, gr, acked)
	return c.report(gr, found, err)
}

func (c reconciled) report(gr schema.GroupResource, found reconcile.Comparison, err error) error {
	if err == nil && found != (reconcile.Comparison{}) {
		c.Logger.Info("bus compared with the cluster", "resource", gr.String(), "deleted", found.Deleted,
			"deselected", found.Deselected, "out_of_scope", found.OutOfScope, "waiting", found.Waiting, "outlived", found.Outlived, "restored", found.Restored)
	}
	return err
}

// EnqueueAll implements [checkpoint.Cluster].
func (c reconciled) EnqueueAll() {
	c.raiseEpochs()
	c.informers.EnqueueAll()
	for _, gr := range c.informers.Watched() { // the bus might have lost every object of a resource
		c.reconciler.CompareResource(gr)
	}
}

// termRegisterer registers the metrics of one term, so that they can be unregistered when
// the term ends. The next term registers its own.
type termRegisterer struct {
	prometheus.Registerer
	mu         sync.Mutex
	collectors []prometheus.Collector
}

var _ prometheus.Registerer = (*termRegisterer)(nil)

// Register implements [prometheus.Registerer].
func (r *termRegisterer) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.collectors = append(r.collectors, c)
	}
	return err
}

// MustRegister implements [prometheus.Registerer].
func (r *termRegisterer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *termRegisterer) unregisterAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.collectors {
		r.Unregister(c)
	}
	r.collectors = nil
}
