package simulate

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/internal/resolve"
)

const (
	refreshPeriod   = 10 * time.Minute
	unseenLimit     = 3 * time.Minute // see internal/forward
	deleteRetention = 24 * time.Hour

	resolvedInterval = 5 * time.Second
)

// process is a forwarder.
type process struct {
	world  *world
	slot   int8
	config config
	frozen bool // the process is paused

	spaces    spaceWatch
	reflector reflector
	race      uint8 // see overtake
	ledger    *ledger.Ledger
	epoch     uint16
	raised    uint16 // the next epoch

	acked      *ledger.Term
	checkpoint *checkpoint.Checkpoint
	forwarder  *forward.Forwarder
	comparer   *reconcile.Comparer
	reconciler *checkpoint.Reconciler
	retention  *checkpoint.Retention

	resolver  *resolve.Resolver
	selection uint64      // see [resolve.Informers]
	lookedAt  time.Time   // when the resolver last ran
	point     event.Point // the last acknowledged consistency point

	client      client
	connections int    // number of broken connections to the bus
	losses      uint64 // see [publish.Bus]

	// With leader election
	leads      bool      // the process has a term
	superseded bool      // another process has become the leader since
	joined     bool      // keys can be enqueued; always true without leader election
	reloadAt   time.Time // when the new leader loads the checkpoint again; zero for never

	session *session // nil on NATS, and while the process isn't the writer
	wrote   bool     // the process has had a session
	gone    bool     // another forwarder took over, so the process ends

	latest     [len(objectNames)]*event.Object // the last selected states that an informer has shown
	loaded     bool
	due        bool      // the reconciler has work
	next       time.Time // when the reconciler runs next
	keys       [len(objectNames)]queued
	coroutines []*coroutine
	running    *coroutine
	syncing    int8 // the object whose worker runs
}

// queued is the state of a key in the queue.
type queued struct {
	waiting  bool
	since    time.Time // no worker takes the key before this time
	working  bool
	failures int
	latest   *event.Object            // of the process, when a worker took the key
	gone     map[string]*event.Object // of the informer, when a worker took the key
}

func (w *world) start(slot int8) {
	p := &process{world: w, slot: slot, config: w.config, ledger: ledger.New(), reflector: newReflector(), selection: 1}
	p.spaces = p.newSpaceWatch()
	w.processes[slot] = p
	p.client = nats{p}
	if w.isKafka() {
		p.client = kafka{p}
	}
	if !w.elects {
		p.joined = true
		p.beginTerm()
	}
}

// beginTerm creates the components of a term, and starts to load the checkpoint.
func (p *process) beginTerm() {
	log := slog.New(slog.DiscardHandler)
	p.acked = p.ledger.NewTerm()
	p.checkpoint = checkpoint.NewAt(p.acked, p.now)
	p.checkpoint.PossibleLosses = func() uint64 { return p.losses }
	p.comparer = reconcile.New(reconcile.Config{
		Informers: p, Reads: reader{p: p}, PublishDeselected: p.config.publishDeselected, Now: p.now, Logger: log, Registerer: noMetrics{},
		Each: func(ctx context.Context, n int, read func(context.Context, int) error) error {
			var first error
			for i := range n {
				if err := read(ctx, i); err != nil {
					return err
				}
			}
			return first
		},
	})
	p.reconciler = checkpoint.NewReconciler(p.checkpoint, p.client, compared{p}, refreshPeriod, log)
	p.retention = &checkpoint.Retention{Checkpoint: p.checkpoint, Bus: p.client, After: deleteRetention, Now: p.now, Log: log}
	builder := event.Builder{Cluster: clusterName}
	if p.config.change {
		builder.Data = event.DataChange
	}
	p.forwarder = forward.New(forward.Config{
		Informers: p, Ledger: p.acked, Publish: p.client.publish, History: p.client,
		Recheck: func(k event.Key) { p.reconciler.CompareKey(k); p.due = true },
		Lost:    func() bool { return p.checkpoint.Age() < deleteRetention },
		Builder: builder, Go: func(f func()) { p.spawn(p.syncing, f) }, Now: p.now, Logger: log, Registerer: noMetrics{},
	})
	p.resolver = resolve.New(resolve.Config{
		Informers: p, Checkpoint: p.acked, Losses: p.checkpoint.Losses, Publish: p.publishPoint, Compare: func(schema.GroupResource) { p.compareResource() },
		Interval: resolvedInterval, Now: p.now, Logger: log,
	})
	p.spawn(loading, p.load)
}

func (p *process) now() time.Time { return p.world.now }

// load loads the checkpoint and starts everything else.
func (p *process) load() {
	for {
		if p.world.isKafka() {
			p.takeOver()
		}
		if p.gone {
			return
		}
		if _, err := p.checkpoint.Load(context.Background(), p.client); err == nil {
			break
		}
		p.world.tell("  forwarder %d could not load the checkpoint", p.slot+1)
	}
	p.world.oracle.started()
	p.raiseEpochs()
	p.loaded = true
	p.next = p.now().Add(refreshPeriod)
	if p.leads {
		p.startLeading()
	} else {
		p.epoch = p.raised
	}
	p.world.tell("  forwarder %d has loaded %d entries, epoch %d", p.slot+1, p.acked.Len(), p.epoch)
}

func (p *process) raiseEpochs() {
	for gr, epoch := range p.acked.Epochs() {
		p.RaiseEpoch(gr, epoch)
	}
}

func (p *process) kill() {
	p.stopCoroutines()
	p.world.processes[p.slot] = nil
	p.session = nil
	p.world.abandon(p)
}

func (p *process) stopCoroutines() {
	for len(p.coroutines) > 0 {
		p.coroutines[0].stop()
		p.end(p.coroutines[0])
	}
}

// wake continues a frozen process.
func (p *process) wake() {
	p.frozen = false
	if p.superseded {
		p.endTerm()
	}
}

// enqueue adds a key to the queue. A worker can take the key at once, even during a backoff.
func (p *process) enqueue(k event.Key) {
	if !p.joined {
		return
	}
	q := &p.keys[objectOf(k)]
	q.waiting, q.since = true, time.Time{}
}

// enqueueShown enqueues the keys of all objects in the indexer.
func (p *process) enqueueShown() {
	for object, o := range p.reflector.indexer {
		if o != nil {
			p.enqueue(keyOf(object))
		}
	}
}

// work lets a worker process one key.
func (p *process) work(object int) {
	q := &p.keys[object]
	q.waiting, q.working, q.latest, q.gone = false, true, p.latest[object], maps.Clone(p.reflector.gone)
	done := false
	p.syncing = int8(object)
	p.forwarder.Sync(context.Background(), keyOf(object), func(again bool, err error) {
		if done {
			panic("done was called twice")
		}
		done, q.working = true, false
		switch {
		case err != nil && !q.waiting:
			q.waiting, q.since = true, p.now().Add(time.Second<<min(q.failures, 6))
			q.failures++
		case again:
			q.waiting, q.since = true, time.Time{}
		}
		if err == nil {
			q.failures = 0
		}
	})
}

// retryNow ends all backoffs.
func (p *process) retryNow() {
	for n := range p.keys {
		p.keys[n].since = time.Time{}
	}
}

// mayLose records that the bus may have lost events, and schedules a reload.
func (p *process) mayLose() {
	p.losses++
	p.reload()
}

// reload schedules a reload of the checkpoint.
func (p *process) reload() {
	p.reconciler.Refresh()
	p.due = true
}

func (p *process) compareResource() {
	if p.reconciler == nil {
		return // a standby has no reconciler
	}
	p.reconciler.CompareResource(resource.GroupResource())
	p.due = true
}

// reconcile starts one run of the reconciler.
func (p *process) reconcile() {
	p.due = false
	if p.mustReload() {
		p.reloadAt = time.Time{}
		p.reconciler.Refresh()
	}
	p.spawn(reconciler, func() { p.next = p.reconciler.Once(context.Background(), p.now) })
}

// noMetrics registers nothing.
type noMetrics struct{}

func (noMetrics) Register(prometheus.Collector) error  { return nil }
func (noMetrics) MustRegister(...prometheus.Collector) {}
func (noMetrics) Unregister(prometheus.Collector) bool { return true }
