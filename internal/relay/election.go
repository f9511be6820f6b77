package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/kuberelay/kuberelay/internal/leader"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// newElection returns a candidate. It has its own client, so that no other request delays a
// renewal.
func (r *Relay) newElection() (*leader.Election, error) {
	s := r.Settings.Leader
	rc := rest.CopyConfig(r.Kube)
	rc.Timeout = s.RenewDeadline / 2 // so that one lost request does not cost the lease
	client, err := coordinationclient.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	leaderelection.SetProvider(operations.LeaderElectionMetrics(r.Registerer))
	return leader.New(leader.Config{
		Leases: client, Namespace: s.Namespace, Name: s.LeaseName, Identity: r.Identity,
		LeaseDuration: s.LeaseDuration, RenewDeadline: s.RenewDeadline, RetryPeriod: s.RetryPeriod,
		Now: time.Now, Logger: r.Logger, Registerer: r.Registerer,
	}), nil
}

// runElected is Run with leader election. While this process is not the leader, it stands
// by: the informers stay current, and nothing is published.
func (r *Relay) runElected(ctx context.Context) error {
	e, err := r.newElection()
	if err != nil {
		return &ConfigError{err}
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
	// An error after the lease is lost does not count: another process leads.
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
	if err = t.serve(held, w); err != nil && (lost() || r.mayStandAgain(err, time.Since(began))) {
		r.Logger.Warn("leadership term ended, standing by", "err", err)
		return nil
	}
	return err
}

// mayStandAgain reports whether this process stands for election again after it lost the
// bus although it seems to hold the lease. Then another process took over the bus: either
// this process has not noticed yet that it lost the lease, or the other one was elected
// earlier and is late. A process that ignores the lease would take over again and again,
// and the two would end each other's terms forever. So after a short term the error ends
// this process, and the one that stays names the other in its log.
func (r *Relay) mayStandAgain(err error, term time.Duration) bool {
	// A ConfigError means that the cluster name has another owner.
	return errors.Is(err, publish.ErrGone) && !isConfigError(err) && term >= r.Settings.Leader.LeaseDuration
}
