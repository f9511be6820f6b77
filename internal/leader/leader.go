// Package leader elects one of several forwarders as the writer, with a Kubernetes Lease. It builds
// on client-go's leader election. It does not depend on events, informers, or buses. They do not
// depend on it either: the lead function of [Election.Run] starts and stops them.
//
// The package guarantees:
//
//   - [Election.Run] calls lead only while the Lease is held, and releases the Lease only after
//     lead has returned. If lead drains its queue before it returns, the next leader starts after
//     the drain.
//   - An interrupted leadership ends. If another process has held the Lease since the last renewal,
//     however briefly, or the Lease was deleted, the state of this process is stale, and the context
//     of lead ends. client-go would continue as if nothing had happened.
//   - [Election.Permit] reports whether writing is allowed at the time of the call. It uses
//     the clock and not a timer. So a process that was suspended, or whose machine slept,
//     receives the correct result before any of its timers fires.
//
// The package does not guarantee that a process without the Lease can't write, because a Lease does
// not fence. A process can be suspended for any time between a call of Permit and the write that
// follows. Only the bus can reject such a write, and it does: see docs/high-availability.md.
package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kuberelay/kuberelay/internal/elapsed"
)

// Config configures an Election. Every field is required.
type Config struct {
	// Leases must have a request timeout well below RenewDeadline. If the API server hangs, a request
	// without a timeout never fails.
	Leases coordinationclient.LeasesGetter

	Namespace, Name string
	Identity        string // unique among all current and past processes

	// LeaseDuration is in whole seconds and longer than the sum of the other two.
	// RenewDeadline is at least twice RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Election is one candidate. Create one with [New].
type Election struct {
	Config

	mu      sync.Mutex
	holder  string         // holder of the Lease at the last read; "" for none
	record  []byte         // the Lease at the last read
	lasts   time.Duration  // how long the Lease is valid after a renewal, according to its record
	renewed time.Time      // when this process renewed the Lease or saw that another did; zero for never
	granted elapsed.Moment // when the last successful renewal was requested; zero if not the leader
	denied  error          // why the API server denied access in its last response; nil if it did not
	failed  error          // the last error of a request; nil after a renewal, and while another process holds the Lease
}

// New returns a candidate that does nothing until [Election.Run].
func New(c Config) *Election {
	e := &Election{Config: c}
	c.Registerer.MustRegister(&metrics{e})
	return e
}

// ErrNotHeld means that writing is not allowed.
var ErrNotHeld = errors.New("lease not held")

// Permit returns nil if writing is allowed now, and an error that wraps [ErrNotHeld] otherwise. It
// does not block.
func (e *Election) Permit() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.permit()
}

func (e *Election) permit() error {
	if e.granted == (elapsed.Moment{}) {
		return ErrNotHeld
	}
	if age := e.granted.Age(time.Now()); age >= e.validity() {
		return fmt.Errorf("%w: last renewed %s ago", ErrNotHeld, age.Round(time.Millisecond))
	}
	return nil
}

// validity is how long a renewal permits writing. It is the time for which client-go's elector
// remains the leader without another renewal. The rest of the LeaseDuration, after which another
// process can become the leader, is reserved for writes in flight.
func (e *Election) validity() time.Duration { return e.RenewDeadline + e.RetryPeriod }

// Standing is a candidate's view of the leadership.
type Standing struct {
	Leading bool
	Holder  string // of the Lease; "" if nobody is known to hold it

	// Renewed is the time of the last renewal of the Lease that this process saw, or zero if it saw
	// none. Failed is the reason why this process could not read or renew the Lease, or nil if it
	// could. Both are set only without a Holder.
	Renewed time.Time
	Failed  error

	Denied error // why the API server denies access; nil if it does not
}

// Standing returns this candidate's current view of the leadership. A Lease that is not renewed has
// no holder, even if it contains a name.
func (e *Election) Standing() Standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	leading := e.permit() == nil
	if leading || e.heldByAnother() {
		return Standing{Leading: leading, Holder: e.holder, Denied: e.denied}
	}
	return Standing{Renewed: e.renewed, Failed: e.failed, Denied: e.denied}
}

// heldByAnother reports whether another process holds the Lease. After a renewal, the Lease counts
// as held for its duration plus one RetryPeriod, because a takeover can take that long.
func (e *Election) heldByAnother() bool {
	return e.holder != "" && e.holder != e.Identity && time.Since(e.renewed) <= e.lasts+e.RetryPeriod
}

// The error of a failed request wraps errRead or errRenew, which names the request.
var (
	errRead  = errors.New("read the lease")
	errRenew = errors.New("renew the lease")
)

// Ready returns an error if the API server denies access to the Lease. It also returns an error if
// nobody holds the Lease and this process can read but not renew it, because the process can then
// be neither leader nor standby.
func (e *Election) Ready() error {
	switch is := e.Standing(); {
	case is.Denied != nil:
		return is.Denied
	case is.Failed != nil && !errors.Is(is.Failed, errRead):
		return fmt.Errorf("nobody leads: %w", is.Failed)
	}
	return nil
}

// Run stands for election until ctx ends and calls lead whenever it is elected. held ends
// when leadership is lost, and lead must not write after that. If ctx ends first, lead may
// finish its work. When lead returns, Run releases the Lease and stands for election again.
// If lead returns an error, Run returns it.
func (e *Election) Run(ctx context.Context, lead func(held context.Context) error) error {
	for ctx.Err() == nil {
		if err := e.stand(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// stand runs one candidacy, which ends when its leadership ends, or with ctx.
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
	// The elector logs every attempt. The lock logs changes only.
	quiet := logr.FromSlogHandler(debugHandler{e.Logger.Handler()})
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
		e.Logger.Info("lease acquired, leading", "lease", lock.Describe(), "identity", e.Identity)
		return lead(held)
	}
}

// poll is the interval at which the elector checks whether the Lease is free, and calls the lock to
// renew it. The interval is short, so that the next leader starts within a second after a release.
// The lock renews less often.
func (e *Election) poll() time.Duration { return max(e.RetryPeriod/4, 10*time.Millisecond) }

func (e *Election) newLock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}, Client: e.Leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}
}

// releaseTimeout bounds the release of the Lease, because it is the last part of a shutdown.
const releaseTimeout = 2 * time.Second

// resign releases the Lease if this process might hold it, so that no candidate has to wait until it
// expires. It does not use client-go's ReleaseOnCancel, which releases the Lease before anyone
// learns that leadership ended.
func (e *Election) resign(ctx context.Context, l *lock) {
	e.revoke()
	led, maybe := l.led()
	if !maybe {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(e.RetryPeriod, releaseTimeout))
	defer cancel()
	switch err := e.release(ctx, l.Interface); {
	case err != nil && led:
		e.Logger.Warn("stopped leading, but cannot release the lease; it expires by itself", "lease", l.Describe(), "err", err)
	case err != nil: // this process might hold the Lease if a request to acquire it had no response
		e.Logger.Debug("cannot release the lease; it expires by itself if this process holds it", "lease", l.Describe(), "err", err)
	case led: // otherwise another candidate usually acquired the Lease
		e.Logger.Info("stopped leading", "lease", l.Describe(), "identity", e.Identity)
	}
}

func (e *Election) release(ctx context.Context, l resourcelock.Interface) error {
	record, _, err := l.Get(ctx)
	if apierrors.IsNotFound(err) { // the Lease was deleted
		return nil
	}
	if err != nil || record.HolderIdentity != e.Identity {
		return err
	}
	now := metav1.NewTime(time.Now())
	record.HolderIdentity, record.LeaseDurationSeconds, record.AcquireTime, record.RenewTime = "", 1, now, now
	switch err := l.Update(ctx, *record); {
	case apierrors.IsConflict(err): // the API server has just stored a renewal that was canceled
		return e.release(ctx, l)
	case err != nil:
		return err
	}
	e.observe(&resourcelock.LeaderElectionRecord{}, nil)
	return nil
}

// grant records a successful renewal with the time of its request.
func (e *Election) grant(asked time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.granted, e.renewed, e.holder = elapsed.At(asked), asked, e.Identity
}

func (e *Election) revoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.granted = elapsed.Moment{}
}

// observe records the Lease that was read, and logs a change of its holder. If another process has
// renewed the Lease, observe uses the time of the read, because the clocks of processes differ.
func (e *Election) observe(record *resourcelock.LeaderElectionRecord, raw []byte) {
	holder := record.HolderIdentity
	e.mu.Lock()
	before := e.holder
	if holder != e.Identity && (e.renewed.IsZero() || !bytes.Equal(raw, e.record)) {
		e.renewed = time.Now()
	}
	e.holder, e.record, e.lasts = holder, raw, time.Duration(record.LeaseDurationSeconds)*time.Second
	e.mu.Unlock()
	if holder != before && holder != "" && holder != e.Identity {
		e.Logger.Info("standing by, another forwarder leads", "leader", holder)
	}
}
