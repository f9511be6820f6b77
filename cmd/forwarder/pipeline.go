package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// rediscover is how often discovery is asked again; a new CustomResourceDefinition
// does not wait for it.
const rediscover = 30 * time.Second

// pipeline is the way of a change from the informers to the bus: each part is a
// package, and here they meet.
type pipeline struct {
	informers  *informers.Set
	queue      *workqueue.Queue
	forwarder  *forward.Forwarder
	checkpoint *checkpoint.Checkpoint
	reconciler *checkpoint.Reconciler
	retention  *checkpoint.Retention // nil on a bus that cannot be purged
	drain      time.Duration
	busReady   func() error
	busCreated func() uint64
	log        *slog.Logger
}

func newPipeline(cfg config.Config, c *cluster, b *bus, redactionKey []byte, log *slog.Logger, r prometheus.Registerer) *pipeline {
	p := &pipeline{checkpoint: checkpoint.New(), drain: cfg.Work.DrainTimeout, busReady: b.Ready, busCreated: b.created, log: log}
	builder := event.Builder{Cluster: c.name}
	p.queue = workqueue.New(workqueue.Config{
		Workers: cfg.Work.Workers, MaxInFlight: maxInFlight(cfg),
		BaseDelay: cfg.Work.RetryBaseDelay, MaxDelay: cfg.Work.RetryMaxDelay, MetricsProvider: operations.WorkqueueMetrics(r),
	})
	compare := func(gr schema.GroupResource) { p.reconciler.Ask(gr) }
	p.informers = informers.New(informers.Config{
		Dynamic: c.dynamic, Streams: c.streams, Reads: c.reads, Discovery: c.discovery, Access: c.access, Rules: c.rules, Converter: event.NewConverter(redactionKey),
		Selection: informers.Selection{
			Include: cfg.Watch.Resources, Exclude: cfg.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed(),
		},
		Namespaces: namespaceSelection(cfg.Watch), TellDeselected: cfg.Watch.OnDeselect == config.OnDeselectPublish,
		Follow:        cfg.Watch.Follow,
		LabelSelector: cfg.Watch.LabelSelector, FieldSelector: cfg.Watch.FieldSelector,
		Resync: cfg.Work.ResyncPeriod, Rediscover: rediscover,
		Enqueue: p.queue.Add, EnqueueBehind: p.queue.AddBehind, Compare: compare, Discovered: func() { p.compareAll() }, Snapshots: newSnapshots(b, builder),
		InformerMetrics: operations.InformerMetrics(r), Now: time.Now, Logger: log, Registerer: r,
	})
	p.reconciler = checkpoint.NewReconciler(p.checkpoint, b.source, comparer{p.informers, p.checkpoint, compare, log}, cfg.Work.CheckpointRefresh, log)
	if b.purger != nil {
		p.retention = &checkpoint.Retention{
			Checkpoint: p.checkpoint, Bus: b.purger, After: cfg.Work.DeleteRetention, Now: time.Now, Log: log,
		}
	}
	p.forwarder = forward.New(forward.Config{
		Informers: p.informers, Checkpoint: p.checkpoint, Publish: b.send, History: b.history,
		Doubt:   func(k event.Key) { compare(k.GroupResource()) },
		Lost:    func() bool { return p.checkpoint.Age() < cfg.Work.DeleteRetention },
		Builder: builder, Logger: log, Registerer: r,
	})
	return p
}

func namespaceSelection(w config.Watch) informers.NamespaceSelection {
	n := informers.NamespaceSelection{Include: w.Namespaces, Exclude: w.ExcludeNamespaces}
	if w.NamespaceSelector != "" {
		n.Selector, _ = labels.Parse(w.NamespaceSelector) // the configuration was checked
	}
	return n
}

// compareAll has every resource compared that the bus knows of, also those that
// nothing watches.
func (p *pipeline) compareAll() {
	for _, gr := range p.checkpoint.Resources() {
		p.reconciler.Ask(gr)
	}
}

// run blocks until ctx ends. Then it stops the informers, drains the queue within
// the configured time, and returns. It returns an error only for what ends the
// forwarder by itself.
func (p *pipeline) run(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()

	var sent, compared sync.WaitGroup
	sent.Go(func() {
		p.queue.Run(sending, func(ctx context.Context, k event.Key, done func(workqueue.Result)) {
			p.forwarder.Sync(ctx, k, func(again bool, err error) { done(workqueue.Result{Again: again, Err: err}) })
		})
	})
	compared.Go(func() { p.reconciler.Run(watching) })
	var lost error
	compared.Go(func() {
		if lost = p.awaitReturns(watching); lost != nil {
			stopWatching() // only another process can help
		}
	})
	if p.retention != nil {
		compared.Go(func() { p.retention.Run(watching) })
	}
	failure := p.informers.Run(watching) // until ctx ends, as a rule

	stopWatching()
	compared.Wait()
	p.log.Info("informers stopped; draining the queue", "keys", p.queue.Len(), "in_back_off", p.queue.Delayed(), "in_flight", p.queue.InFlight())
	failpoint.Hit("drain")
	deadline, cancel := context.WithTimeout(sending, p.drain)
	defer cancel()
	if err := p.queue.Drain(deadline); err != nil {
		// Not an error: what is left is found again at the next start.
		p.log.Warn("the queue is not empty", "err", err, "keys", p.queue.Len(), "in_flight", p.queue.InFlight())
	}
	stopSending()
	sent.Wait()
	return errors.Join(failure, lost)
}

// busPoll is how often it is looked whether the bus is back. It asks no server.
const busPoll = 100 * time.Millisecond

// awaitReturns hands out no keys while the bus is away. It sees to it, whenever the
// bus is back, or its stream had to be created again, that what failed is tried at
// once, and that the checkpoint is read again: the bus may have come back without
// all that it had.
// It blocks until ctx ends, and returns an error if the bus is gone for good.
func (p *pipeline) awaitReturns(ctx context.Context) error {
	ticker := time.NewTicker(busPoll)
	defer ticker.Stop()
	away, created := false, p.busCreated()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		wasAway, before := away, created
		err := p.busReady()
		if errors.Is(err, publish.ErrGone) {
			return err
		}
		away, created = err != nil, p.busCreated()
		if failpoint.Bug("acknowledge-before-publish") || failpoint.Bug("give-up") {
			continue // without these further lines of defence
		}
		if away {
			// A publish would fail at once. But what is deleted may be nothing that the
			// bus has to be told, and its last state need not be kept then.
			p.queue.Pause(p.informers.Buried)
		} else {
			p.queue.Resume()
		}
		if wasAway && !away || created != before {
			p.queue.RetryNow()
			p.reconciler.Refresh()
		}
	}
}

// load reads the checkpoint from the bus, until it succeeds or ctx ends.
func (p *pipeline) load(ctx context.Context, b *bus, progress func(func() error)) error {
	if b.source == nil || failpoint.Bug("forget-checkpoint") {
		return nil
	}
	backoff := apiServerBackoff
	for {
		start := time.Now()
		err := p.checkpoint.Load(ctx, b.source)
		if err == nil {
			p.informers.RaiseEpoch(p.checkpoint.Epoch())
			p.log.Info("checkpoint loaded from the bus", "objects", p.checkpoint.Len(), "seconds", time.Since(start).Seconds())
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errors.Is(err, publish.ErrGone):
			return err
		}
		progress(func() error { return err })
		p.log.Warn("the checkpoint cannot be read from the bus; will be tried again", "err", err)
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// comparer is the cluster as the reconciler sees it.
type comparer struct {
	informers  *informers.Set
	checkpoint *checkpoint.Checkpoint
	compare    func(schema.GroupResource)
	log        *slog.Logger
}

var _ checkpoint.Cluster = comparer{}

func (c comparer) Reconcile(ctx context.Context, gr schema.GroupResource, acked iter.Seq2[event.Key, event.Acked]) error {
	c.informers.RaiseEpoch(c.checkpoint.Epoch())
	found, err := c.informers.Reconcile(ctx, gr, acked)
	if err == nil && found != (informers.Comparison{}) {
		c.log.Info("bus compared with the cluster", "resource", gr.String(), "deleted", found.Deleted,
			"deselected", found.Deselected, "out_of_scope", found.OutOfScope, "waiting", found.Waiting, "restored", found.Restored)
	}
	return err
}

func (c comparer) EnqueueAll() {
	c.informers.RaiseEpoch(c.checkpoint.Epoch())
	c.informers.EnqueueAll()
	for _, gr := range c.informers.Watched() { // the bus may have nothing of it any more
		c.compare(gr)
	}
}
