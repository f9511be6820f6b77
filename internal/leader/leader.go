// Package leader sees to it that of several forwarders one writes at a time, by a Lease
// of Kubernetes: client-go's leader election, and what that leaves open. It is a package
// of its own because it knows nothing of events, informers and buses, and they nothing of
// it: they are told to begin and to end.
//
// What it guarantees:
//
//   - [Election.Run] calls lead only while the Lease is held, and does not give it up
//     before lead has returned. So whoever drains what is left in lead hands it over
//     drained, and the next leader finds it free.
//   - A leadership that was interrupted is over. If another has held the Lease in the
//     meantime, however shortly, or nobody, what this one knew is of yesterday, and
//     held ends. client-go would go on as if nothing had happened.
//   - [Election.Permit] says of this very moment whether to write is allowed, by the
//     clock and not by a timer: a process that was stopped, or whose machine slept, gets
//     its answer before any of its timers has fired.
//
// What it does not: a Lease does not fence. Between an answer of Permit and the write
// that follows, a process may be stopped for as long as it pleases somebody. Only the bus
// can refuse what is written then, and it does: see docs/high-availability.md.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/clientgo/leaderelection"
	"github.com/kuberelay/kuberelay/internal/clientgo/resourcelock"
	"github.com/kuberelay/kuberelay/internal/clientgo/typed"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Config says which Lease, and how long it holds. Every field is required.
type Config struct {
	Leases typed.LeasesGetter
	// Its requests are to be given up well before RenewDeadline, since an API server that
	// stands still does not refuse them.
	Namespace, Name string
	Identity        string // no other process may have it, also none of the past

	// LeaseDuration, in whole seconds, is longer than the other two together, and
	// RenewDeadline at least twice RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Election is one candidate. Make one with [New].
type Election struct {
	Config
	metrics *metrics

	mu      sync.Mutex
	holder  string    // who held the Lease when it was last read; "" if nobody
	granted time.Time // when the last renewal was asked for that succeeded; zero if we do not lead
	refused error     // why the API server did not let us, the last time that it answered
}

// New makes a candidate that does nothing until [Election.Run].
func New(c Config) *Election {
	e := &Election{Config: c}
	e.metrics = newMetrics(c.Registerer, e)
	return e
}

// ErrNotHeld is why nothing may be written.
var ErrNotHeld = errors.New("the lease is not held")

// Permit is nil if to write is allowed at this moment. It does not block.
func (e *Election) Permit() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.granted.IsZero() {
		return ErrNotHeld
	}
	if age := elapsed(e.granted, e.Now()); age >= e.validity() && !failpoint.Bug("trust-lease") {
		return fmt.Errorf("%w: it was renewed %s ago", ErrNotHeld, age.Round(time.Millisecond))
	}
	return nil
}

// validity is how long a renewal lets us write: as long as client-go's elector holds on
// without another one. Until another may begin there is the rest of the LeaseDuration,
// for what is on its way by then.
func (e *Election) validity() time.Duration { return e.RenewDeadline + e.RetryPeriod }

// elapsed is the longer of what the two clocks say: the monotonic one stands still while
// a machine sleeps, and the other one may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Holder is who held the Lease when it was last read, "" if nobody did.
func (e *Election) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// Ready is nil unless the API server refuses us the Lease, so that this can be neither
// leader nor standby.
func (e *Election) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused
}

// Run stands for election until ctx ends, and calls lead whenever this is elected. What
// lead is given ends when the leadership is lost, and must not be written in from then
// on; if ctx ends first, lead may finish what it has begun. When lead returns, the Lease
// is given up. Run then stands again, unless lead returned an error, which is Run's.
func (e *Election) Run(ctx context.Context, lead func(held context.Context) error) error {
	for ctx.Err() == nil {
		if err := e.stand(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// stand is one candidature: until the leadership that it came to is over, or ctx ends.
func (e *Election) stand(ctx context.Context, lead func(held context.Context) error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	elected := make(chan context.Context, 1)
	lock := &lock{Interface: e.newLock(), e: e, over: stop}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: e.Name, LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.poll(),
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) { elected <- held },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	// What it logs of every attempt is told once, by the lock.
	quiet := logr.FromSlogHandler(demoted{e.Logger.Handler()})
	var running sync.WaitGroup
	running.Go(func() { elector.Run(klog.NewContext(electing, quiet)) })
	defer func() {
		stop()
		running.Wait()
		e.resign(context.WithoutCancel(ctx), lock)
	}()

	select {
	case <-ctx.Done():
		return nil
	case held := <-elected:
		e.Logger.Info("leading: the lease is ours", "lease", lock.Describe(), "identity", e.Identity)
		return lead(held)
	}
}

// poll is the one period that client-go knows, for looking whether the Lease is free and
// for renewing it. It is short for the first, by which the next leader begins within a
// second after the last one has given up; the lock renews at a slower pace.
func (e *Election) poll() time.Duration { return max(e.RetryPeriod/4, 10*time.Millisecond) }

func (e *Election) newLock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}, Client: e.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}
}

// resign gives the Lease up if it is still ours, so that nobody need wait until it has
// run out. client-go's own way (ReleaseOnCancel) does so before anybody has been told
// that the leadership is over.
func (e *Election) resign(ctx context.Context, l *lock) {
	e.revoke()
	if !l.led() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.RetryPeriod)
	defer cancel()
	err := e.release(ctx, l.Interface)
	if err != nil {
		e.Logger.Warn("not leading any more, but the lease could not be given up; it runs out by itself", "lease", l.Describe(), "err", err)
		return
	}
	e.Logger.Info("not leading any more", "lease", l.Describe(), "identity", e.Identity)
}

func (e *Election) release(ctx context.Context, l resourcelock.Interface) error {
	record, _, err := l.Get(ctx)
	if err != nil || record.HolderIdentity != e.Identity {
		return err
	}
	now := metav1.NewTime(e.Now())
	record.HolderIdentity, record.LeaseDurationSeconds, record.AcquireTime, record.RenewTime = "", 1, now, now
	if err := l.Update(ctx, *record); err != nil {
		return err
	}
	e.observe("")
	return nil
}

// grant notes a renewal that was asked for at a time.
func (e *Election) grant(asked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.granted, e.holder = asked, e.Identity
}

func (e *Election) revoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.granted = time.Time{}
}

// observe notes who holds the Lease, and logs a change.
func (e *Election) observe(holder string) {
	e.mu.Lock()
	before := e.holder
	e.holder = holder
	e.mu.Unlock()
	if holder != before && holder != "" && holder != e.Identity {
		e.Logger.Info("standing by: another leads", "leader", holder)
	}
}
