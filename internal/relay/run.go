package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/longwork"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
)

// newElection returns a candidate for the lease. The candidate has its own client, so that no other
// request delays a renewal.
func (r *Relay) newElection() (*leader.Election, error) {
	s := r.Settings.Leader
	rc := rest.CopyConfig(r.Kube)
	rc.Timeout = s.RenewDeadline / 2 // so that one lost request does not cost the lease
	client, err := coordinationclient.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return leader.New(leader.Config{
		Leases: client, Namespace: s.Namespace, Name: s.LeaseName, Identity: r.Identity,
		LeaseDuration: s.LeaseDuration, RenewDeadline: s.RenewDeadline, RetryPeriod: s.RetryPeriod,
		Logger: r.Logger, Registerer: r.Registerer,
	}), nil
}

// runElected implements Run with leader election. While this process is not the leader, it stands
// by: the informers stay current, and nothing is published.
func (r *Relay) runElected(ctx context.Context) error {
	e, err := r.newElection()
	if err != nil {
		return &config.Error{Err: err}
	}
	r.state.started(r, e)
	w := r.watch(ctx)
	err = e.Run(w.ctx, func(held context.Context) error { return r.lead(held, w, e) })
	return errors.Join(w.end(r.Logger), err)
}

// lead runs one term. held ends when the lease is lost.
func (r *Relay) lead(held context.Context, w *watching, e *leader.Election) (err error) {
	leading, stop := context.WithCancel(w.ctx)
	defer stop()
	defer context.AfterFunc(held, stop)()
	// After the lease is lost, an error does not count, because another process is the leader.
	lost := func() bool { return held.Err() != nil || e.Permit() != nil }

	t, err := r.newTerm(leading, e.Permit)
	defer r.state.waitFor(nil)
	if err != nil {
		if w.ctx.Err() != nil || lost() {
			r.Logger.Info("leadership term ended before anything was published", "err", err)
			return nil
		}
		return err
	}
	began := time.Now()
	defer func() { err = errors.Join(err, t.close()) }()
	r.informers.StartLeading()
	defer r.informers.StopLeading()
	r.state.waitFor(nil)
	if err = t.serve(held, w); err != nil && (lost() || r.mayRejoinElection(err, time.Since(began))) {
		r.Logger.Warn("leadership term ended, standing by", "err", err)
		return nil
	}
	return err
}

// mayRejoinElection reports whether this process stands for election again after it lost the bus
// while it seemed to hold the lease. In this case, another process took over the bus. Either this
// process has not noticed yet that it lost the lease, or the other process was elected earlier and
// took over late. If the other process ignores the lease, the two processes would end each other's
// terms forever. So an error after a short term ends this process.
func (r *Relay) mayRejoinElection(err error, term time.Duration) bool {
	// A config.Error means that another cluster took over the cluster name, or that a later release took
	// over the bus. An election cannot change that.
	return errors.Is(err, publish.ErrGone) && !config.IsError(err) && term >= r.Settings.Leader.LeaseDuration
}

// shutdown holds the deadlines for the end of a term. All of them count from the moment at which
// the term begins to end, for example from SIGTERM.
type shutdown struct {
	informers context.Context // half of KUBERELAY_DRAIN_TIMEOUT; the rest is for publishing
	drain     context.Context // KUBERELAY_DRAIN_TIMEOUT: the end of publishing
	over      context.Context // the end of the shutdown, even if something is still running
}

// newShutdown makes the deadlines of a shutdown that begins when ctx ends.
func newShutdown(ctx context.Context, drain time.Duration) (shutdown, context.CancelFunc) {
	informers, cancelInformers := endsAfter(ctx, drain/2)
	draining, cancelDrain := endsAfter(ctx, drain)
	over, cancelOver := endsAfter(ctx, drain+bus.CloseTimeout)
	return shutdown{informers, draining, over}, func() { cancelInformers(); cancelDrain(); cancelOver() }
}

// endsAfter returns a context that ends when d has passed since the end of ctx.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(late, func() { timer.Stop() })
	})
	return late, func() { stop(); cancel() }
}

// returnsBefore calls f, and reports whether it returns before ctx ends.
func returnsBefore(ctx context.Context, f func()) bool {
	returned := make(chan struct{})
	go func() { defer close(returned); f() }()
	return closedBefore(ctx, returned)
}

// closedBefore waits until c is closed or ctx ends, and reports whether c is closed.
func closedBefore(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		select { // c wins if both have ended
		case <-c:
			return true
		default:
			return false
		}
	}
}

// watching is one run of the informers.
type watching struct {
	ctx   context.Context // ends when the informers are told to stop
	stop  context.CancelFunc
	over  context.Context // ends when the shutdown no longer waits for the informers
	ended chan struct{}   // closed when the informers have stopped
	err   error           // why the informers stopped by themselves; valid after ended is closed
}

// watch runs the informers until ctx ends.
func (r *Relay) watch(ctx context.Context) *watching {
	w := &watching{ended: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(ctx)
	w.over, _ = endsAfter(w.ctx, r.Settings.Work.DrainTimeout) // no cancel is necessary, because w.ctx always ends
	go func() {
		defer close(w.ended)
		defer w.stop()
		w.err = r.informers.Run(w.ctx)
	}()
	return w
}

// end stops the informers and returns why they stopped by themselves, if they did. It returns at the
// latest when KUBERELAY_DRAIN_TIMEOUT has passed since the informers were told to stop.
func (w *watching) end(log *slog.Logger) error {
	w.stop()
	if !closedBefore(w.over, w.ended) {
		log.Warn("informers did not stop in time, shutting down without them")
		return nil
	}
	return w.err
}

// minResync is the smallest number of keys that makes a resync long work.
const minResync = 1000

// longWork returns the kinds of long work, in the order in which a start runs them.
func (r *Relay) longWork() []longwork.Work {
	return []longwork.Work{
		{Name: "takeover", Unit: "records", Measure: r.takeover.Measure},
		{Name: "checkpoint_load", Unit: "messages", Measure: r.loading.Measure},
		{Name: "list", Unit: "resources", Measure: r.measureLists},
		{Name: "first_sync", Unit: "objects", Measure: r.measureFirstSync},
		{Name: "resend", Unit: "objects", Measure: r.measureResend},
		{Name: "resync", Unit: "objects", Measure: r.measureResync},
	}
}

func (r *Relay) measureLists() (longwork.Amount, bool) {
	if r.state.running() == nil {
		return longwork.Amount{}, false
	}
	listing, all := r.informers.Health().Listing()
	return longwork.Amount{Done: int64(all - listing), Total: int64(all)}, listing > 0
}

// measureFirstSync measures the objects that existed before the first sync of their resource.
func (r *Relay) measureFirstSync() (longwork.Amount, bool) {
	if r.state.running() == nil || r.term.Load() == nil {
		return longwork.Amount{}, false
	}
	objects, left, listing := r.informers.FirstSync()
	return longwork.Amount{Done: int64(objects - left), Total: int64(objects), Growing: listing}, left > 0 || listing && objects > 0 // the bus can be faster than the list
}

// measureResend measures the changes that waited for the bus while it was unavailable.
func (r *Relay) measureResend() (longwork.Amount, bool) {
	t := r.term.Load()
	if t == nil {
		return longwork.Amount{}, false
	}
	o := t.outage.Load()
	if o == nil {
		return longwork.Amount{}, false
	}
	left := min(o.waiting, t.ledger.Between(o.began, o.ended)) // Between also counts the changes of the second in which the outage ended
	return longwork.Amount{Done: int64(o.waiting - left), Total: int64(o.waiting)}, left > 0
}

// measureResync measures a resync, which compares every object with the checkpoint. A resync runs
// periodically, after a restart, and when the bus has lost messages.
func (r *Relay) measureResync() (longwork.Amount, bool) {
	t := r.term.Load()
	if t == nil {
		return longwork.Amount{}, false
	}
	if _, is := r.measureFirstSync(); is {
		return longwork.Amount{}, false // the first sync counts the same keys
	}
	added, waiting := t.queue.Background()
	return longwork.Amount{Done: added - waiting, Total: added}, added >= minResync && waiting > 0
}
