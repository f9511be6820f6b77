package main

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

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

// term is the time in which this process writes, and what it writes with: what was
// acknowledged, and what is under way, is known for as long as nobody else writes.
type term struct {
	*pipeline
	bus        *bus
	claim      *claim
	queue      *workqueue.Queue
	forwarder  *forward.Forwarder
	checkpoint *checkpoint.Checkpoint
	reconciler *checkpoint.Reconciler
	retention  *checkpoint.Retention // nil on a bus that cannot be purged
	snapshots  *snapshots
	metrics    *ending
}

// begin opens the bus, which on Kafka ends whoever has written before, learns what it
// has acknowledged, and claims the cluster's name. It blocks until it has succeeded, ctx
// ends, or waiting does not help. Permit is asked before each write; nil if nobody else
// may write anyway.
func (p *pipeline) begin(ctx context.Context, permit func() error) (_ *term, err error) {
	claim, err := newClaim(p.config, p.cluster, p.log)
	if err != nil {
		return nil, err
	}
	metrics := &ending{Registerer: p.registerer}
	b, err := openBus(ctx, p.config, claim, permit, p.out, p.log, metrics, p.state.wait)
	if err != nil {
		metrics.end()
		return nil, err
	}
	t := p.newTerm(b, claim, metrics)
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if err := t.load(ctx); err != nil {
		return nil, err
	}
	epoch, err := claim.settle(ctx, b, t.checkpoint, p.state.wait)
	if err != nil {
		return nil, err
	}
	p.informers.RaiseEpoch(epoch)
	p.term.Store(t)
	return t, nil
}

func (p *pipeline) newTerm(b *bus, c *claim, metrics *ending) *term {
	cfg := p.config
	builder := event.Builder{Cluster: p.cluster.name, Data: event.DataForm(p.config.Content.Data)}
	t := &term{pipeline: p, bus: b, claim: c, checkpoint: checkpoint.New(), snapshots: newSnapshots(b, builder), metrics: metrics}
	t.queue = workqueue.New(workqueue.Config{
		Workers: cfg.Work.Workers, MaxInFlight: maxInFlight(cfg), MaxBehind: maxBehind(cfg),
		BaseDelay: cfg.Work.RetryBaseDelay, MaxDelay: cfg.Work.RetryMaxDelay, MetricsProvider: operations.WorkqueueMetrics(metrics),
	})
	t.reconciler = checkpoint.NewReconciler(t.checkpoint, b.source, comparer{t}, cfg.Work.CheckpointRefresh, p.log)
	if b.purger != nil {
		t.retention = &checkpoint.Retention{
			Checkpoint: t.checkpoint, Bus: b.purger, After: cfg.Work.DeleteRetention, Now: time.Now, Log: p.log,
		}
	}
	t.forwarder = forward.New(forward.Config{
		Informers: p.informers, Checkpoint: t.checkpoint, Publish: b.send, History: b.history,
		Doubt:   func(k event.Key) { t.reconciler.Ask(k.GroupResource()) },
		Lost:    func() bool { return t.checkpoint.Age() < cfg.Work.DeleteRetention },
		Builder: builder, Logger: p.log, Registerer: metrics,
	})
	return t
}

// close ends the connection, and with it what is in flight.
func (t *term) close() error {
	t.term.Store(nil)
	defer t.metrics.end()
	return t.bus.Close()
}

// compareAll has every resource compared that the bus knows of, also those that
// nothing watches.
func (t *term) compareAll() {
	for _, gr := range t.checkpoint.Resources() {
		t.reconciler.Ask(gr)
	}
}

// serve publishes until the informers are to stop; then it waits for their end, drains
// the queue within the configured time, and returns. If held ends it stops at once, and
// what is in flight is resolved by whoever writes next. It returns an error only for
// what ends the term by itself; the informers are told to stop then, unless another term
// may follow.
func (t *term) serve(held context.Context, w *watching) error {
	working, stopWorking := context.WithCancel(w.ctx)
	defer stopWorking()
	defer context.AfterFunc(held, stopWorking)()
	sending, stopSending := context.WithCancel(context.WithoutCancel(w.ctx))
	defer stopSending()
	defer context.AfterFunc(held, stopSending)()

	var sent, compared sync.WaitGroup
	sent.Go(func() {
		t.queue.Run(sending, func(ctx context.Context, k event.Key, done func(workqueue.Result)) {
			t.forwarder.Sync(ctx, k, func(again bool, err error) { done(workqueue.Result{Again: again, Err: err}) })
		})
	})
	compared.Go(func() { t.reconciler.Run(working) })
	var lost error
	compared.Go(func() {
		if lost = t.awaitReturns(working); lost != nil {
			stopWorking() // only another process, or another term, can help
		}
	})
	if t.retention != nil {
		compared.Go(func() { t.retention.Run(working) })
	}
	compared.Go(func() { t.claim.keep(working) })
	if t.config.Leader.Election {
		t.compareAll() // what is not served any more has no informer that would ask for it
		compared.Go(func() { t.lookForLastWords(working) })
	}
	<-working.Done()
	compared.Wait()
	if held.Err() != nil || lost != nil && t.config.Leader.Election {
		_ = t.bus.Close() // so that nothing in flight is waited for; close says what it comes to
		stopSending()
		sent.Wait()
		return lost
	}
	if lost != nil {
		w.stop()
	}
	defer context.AfterFunc(held, func() { _ = t.bus.Close() })() // likewise
	<-w.ended
	t.drain(sending, held)
	stopSending()
	sent.Wait()
	return lost
}

func (t *term) drain(sending, held context.Context) {
	t.log.Info("informers stopped; draining the queue", "keys", t.queue.Len(), "in_back_off", t.queue.Delayed(), "in_flight", t.queue.InFlight())
	failpoint.Hit("drain")
	deadline, cancel := context.WithTimeout(sending, t.config.Work.DrainTimeout)
	defer cancel()
	if err := t.queue.Drain(deadline); err != nil && held.Err() == nil {
		// Not an error: what is left is found again at the next start.
		t.log.Warn("the queue is not empty", "err", err, "keys", t.queue.Len(), "in_flight", t.queue.InFlight())
	}
}

// lookForLastWords reads the checkpoint once more when the term has lasted for as long
// as a lease: what the writer before had on its way may have come after it was read. Of
// an object that came and went before our turn, the bus would have no occasion to tell
// us.
func (t *term) lookForLastWords(ctx context.Context) {
	if t.config.Event.Sink != config.SinkNATS || failpoint.Bug("forget-what-was-seen") {
		return // the brokers take nothing of a writer before
	}
	timer := time.NewTimer(t.config.Leader.LeaseDuration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		t.reconciler.Refresh()
	}
}

// busPoll is how often it is looked whether the bus is back. It asks no server.
const busPoll = 100 * time.Millisecond

// awaitReturns hands out no keys while the bus is away. It sees to it, whenever the
// bus is back, or its stream had to be created again, that what failed is tried at
// once, and that the checkpoint is read again: the bus may have come back without
// all that it had.
// It blocks until ctx ends, and returns an error if the bus is gone for good.
func (t *term) awaitReturns(ctx context.Context) error {
	ticker := time.NewTicker(busPoll)
	defer ticker.Stop()
	away, created := false, t.bus.created()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		wasAway, before := away, created
		err := t.bus.Ready()
		if errors.Is(err, publish.ErrGone) {
			return err
		}
		away, created = err != nil, t.bus.created()
		if failpoint.Bug("acknowledge-before-publish") || failpoint.Bug("give-up") {
			continue // without these further lines of defence
		}
		if away {
			// A publish would fail at once. But what is deleted may be nothing that the
			// bus has to be told, and its last state need not be kept then.
			t.queue.Pause(t.informers.Buried)
		} else {
			t.queue.Resume()
		}
		if wasAway && !away || created != before {
			t.queue.RetryNow()
			t.reconciler.Refresh()
		}
	}
}

// load reads the checkpoint from the bus, until it succeeds or ctx ends.
func (t *term) load(ctx context.Context) error {
	if t.bus.source == nil || failpoint.Bug("forget-checkpoint") {
		return nil
	}
	backoff := apiServerBackoff
	for {
		start := time.Now()
		err := t.checkpoint.Load(ctx, t.bus.source)
		if err == nil {
			t.informers.RaiseEpoch(t.checkpoint.Epoch())
			t.log.Info("checkpoint loaded from the bus", "objects", t.checkpoint.Len(), "seconds", time.Since(start).Seconds())
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errors.Is(err, publish.ErrGone):
			return err
		}
		t.state.wait(func() error { return err })
		t.log.Warn("the checkpoint cannot be read from the bus; will be tried again", "err", err)
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// comparer is the cluster as the reconciler sees it.
type comparer struct{ *term }

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
		c.reconciler.Ask(gr)
	}
}
