package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// rediscover is how often discovery is asked again; a new CustomResourceDefinition
// does not wait for it.
const rediscover = 30 * time.Second

// pipeline is the way of a change from the informers to the bus: each part is a
// package, and here they meet. The informers run all the time; what is beyond them is a
// [term], of which there is one after the other where forwarders elect a leader.
type pipeline struct {
	config    config.Config
	cluster   *cluster
	informers *informers.Set
	shape     *shapes
	warned    sync.Once
	term      atomic.Pointer[term] // nil while it is not for us to write

	out        io.Writer
	log        *slog.Logger
	registerer prometheus.Registerer
	state      *readiness
}

func newPipeline(cfg config.Config, c *cluster, redactionKey []byte, out io.Writer, log *slog.Logger, r prometheus.Registerer, state *readiness) (*pipeline, error) {
	shape, err := newShapes(cfg.Content, filterErrors(log, r))
	if err != nil {
		return nil, &usageError{err}
	}
	p := &pipeline{config: cfg, cluster: c, shape: shape, out: out, log: log, registerer: r, state: state}
	p.informers = informers.New(informers.Config{
		Dynamic: c.dynamic, Streams: c.streams, Reads: c.reads, Discovery: c.discovery, Access: c.access, Rules: c.rules, Converter: event.NewConverter(redactionKey), Shape: shape.function(cfg.Content),
		Selection: informers.Selection{
			Include: cfg.Watch.Resources, Exclude: cfg.Watch.ExcludeResources, UnlessNamed: config.UnlessNamed(),
		},
		Namespaces: namespaceSelection(cfg.Watch), TellDeselected: cfg.Watch.OnDeselect == config.OnDeselectPublish,
		Follow:        cfg.Watch.Follow,
		LabelSelector: cfg.Watch.LabelSelector, FieldSelector: cfg.Watch.FieldSelector,
		Resync: cfg.Work.ResyncPeriod, Rediscover: rediscover,
		// Twice as long as nobody may lead, so that what happens meanwhile is told by whoever
		// saw it.
		Standby: cfg.Leader.Election, Remember: 2 * cfg.Leader.LeaseDuration,
		Enqueue: p.enqueue, EnqueueBehind: p.enqueueBehind, Compare: p.compare, Discovered: p.discovered, Snapshots: termSnapshots{p},
		InformerMetrics: operations.InformerMetrics(r), Now: time.Now, Logger: log, Registerer: r,
	})
	return p, nil
}

func namespaceSelection(w config.Watch) informers.NamespaceSelection {
	n := informers.NamespaceSelection{Include: w.Namespaces, Exclude: w.ExcludeNamespaces}
	if w.NamespaceSelector != "" {
		n.Selector, _ = labels.Parse(w.NamespaceSelector) // the configuration was checked
	}
	return n
}

// What the informers tell nobody while it is not for us to write, they tell again when it
// is.

func (p *pipeline) enqueue(k event.Key) {
	if t := p.term.Load(); t != nil {
		t.queue.Add(k)
	}
}

func (p *pipeline) enqueueBehind(k event.Key) {
	if t := p.term.Load(); t != nil {
		t.queue.AddBehind(k)
	}
}

func (p *pipeline) compare(gr schema.GroupResource) {
	if t := p.term.Load(); t != nil {
		t.reconciler.Ask(gr)
	}
}

func (p *pipeline) discovered() {
	p.warned.Do(func() { p.shape.warn(p.informers.Resources(), p.log) })
	p.compareAll()
}

func (p *pipeline) compareAll() {
	if t := p.term.Load(); t != nil {
		t.compareAll()
	}
}

// watching is the informers' run.
type watching struct {
	ctx   context.Context // ends when they are to stop
	stop  context.CancelFunc
	ended chan struct{} // closed when they have stopped
	err   error         // why, if not because they were asked; to be read when they have
}

// watch runs the informers until ctx ends.
func (p *pipeline) watch(ctx context.Context) *watching {
	w := &watching{ended: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer close(w.ended)
		defer w.stop()
		w.err = p.informers.Run(w.ctx)
	}()
	return w
}

// runAlone blocks until ctx ends, and what is left then is published. It returns an error
// only for what ends the forwarder by itself.
func (p *pipeline) runAlone(ctx context.Context) (err error) {
	t, err := p.begin(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	p.state.run(p, nil)
	w := p.watch(ctx)
	lost := t.serve(context.Background(), w)
	w.stop()
	<-w.ended
	return errors.Join(w.err, lost)
}

// runElected does so while the lease is ours, and stands by when it is not: the
// informers are kept current, and nothing is written.
func (p *pipeline) runElected(ctx context.Context) error {
	e, err := newElection(p.config, p.log, p.registerer)
	if err != nil {
		return &usageError{err}
	}
	p.state.run(p, e)
	w := p.watch(ctx)
	err = e.Run(w.ctx, func(held context.Context) error { return p.lead(held, w, e) })
	w.stop()
	<-w.ended
	return errors.Join(w.err, err)
}

// lead is one term of an election.
func (p *pipeline) lead(held context.Context, w *watching, e *leader.Election) (err error) {
	leading, stop := context.WithCancel(w.ctx)
	defer stop()
	defer context.AfterFunc(held, stop)()
	// What fails because the lease is not ours any more is no failure: another writes.
	over := func() bool { return held.Err() != nil || e.Permit() != nil }

	t, err := p.begin(leading, e.Permit)
	defer p.state.wait(nil)
	if err != nil {
		if w.ctx.Err() != nil || over() {
			p.log.Info("the term ended before anything was written", "err", err)
			return nil
		}
		return err
	}
	began := time.Now()
	defer func() { err = errors.Join(err, t.close()) }()
	p.informers.Lead()
	defer p.informers.Rest()
	p.state.wait(nil)
	if err = t.serve(held, w); err != nil && (over() || p.mayBeginAnew(err, time.Since(began))) {
		p.log.Warn("the term ended; standing by", "err", err)
		return nil
	}
	return err
}

// mayBeginAnew is whether to stand for election again after a term whose bus is gone
// although the lease seems to be ours: another has come to it without our having been
// told, or was elected before us and is late. One that does not look at our lease at all
// comes again and again, and each would put an end to the other for ever: so whose term
// was short ends with the error. The one that stays names the other in its log.
func (p *pipeline) mayBeginAnew(err error, term time.Duration) bool {
	var usage *usageError // the name is another cluster's
	return errors.Is(err, publish.ErrGone) && !errors.As(err, &usage) && term >= p.config.Leader.LeaseDuration
}

// ending is a registerer of metrics that end with a term: the next one has its own.
type ending struct {
	prometheus.Registerer
	mu  sync.Mutex
	all []prometheus.Collector
}

var _ prometheus.Registerer = (*ending)(nil)

// Register is part of [prometheus.Registerer].
func (e *ending) Register(c prometheus.Collector) error {
	err := e.Registerer.Register(c)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, c)
	}
	return err
}

// MustRegister is part of [prometheus.Registerer].
func (e *ending) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := e.Register(c); err != nil {
			panic(err)
		}
	}
}

func (e *ending) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.all {
		e.Unregister(c)
	}
	e.all = nil
}
