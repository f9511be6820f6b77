package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kuberelay/kuberelay/internal/elapsed"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// lock adapts the Lease of one candidacy for client-go's elector. It records the time of each
// renewal request, and ends leadership at the first sign that another process has held the Lease
// since.
type lock struct {
	resourcelock.Interface
	e    *Election
	over func() // ends the candidacy

	mu      sync.Mutex
	asked   bool // the Lease might be held, because a request to acquire it was sent
	leading bool // true from the first time that the Lease is held, for the rest of the candidacy
	lost    bool
	failing bool // the last request failed, and the failure was logged
}

var _ resourcelock.Interface = (*lock)(nil)

var errLost = errors.New("leadership ended")

// led reports whether this process held the Lease in this candidacy, and whether it might hold the
// Lease.
func (l *lock) led() (led, maybe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading, l.asked
}

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) { // the elector then creates the Lease, which shows whether access is denied
		l.e.observe(&resourcelock.LeaderElectionRecord{}, nil)
		return nil, nil, err
	}
	if err != nil {
		l.note(errRead, err)
		return nil, nil, err
	}
	l.e.observe(record, raw)
	if is := l.e.Standing(); is.Holder != "" && !is.Leading { // otherwise a renewal follows, and its result counts
		l.note(errRead, nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading && record.HolderIdentity != l.e.Identity {
		return nil, nil, l.lose(record.HolderIdentity)
	}
	return record, raw, nil
}

// lose ends leadership, and prevents the elector from acquiring the Lease again in this
// candidacy.
func (l *lock) lose(to string) error {
	if !l.lost {
		l.lost = true
		l.e.revoke()
		l.e.Logger.Warn("lease lost", "lease", l.Describe(), "leader", to)
		l.over()
	}
	return errLost
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lost := l.leading // the Lease was deleted, and any process might have held it since
	if lost {
		defer l.mu.Unlock()
		return l.lose("")
	}
	l.asked = true
	l.mu.Unlock()
	asked := time.Now()
	return l.renewed(asked, l.Interface.Create(ctx, record))
}

// Update implements [resourcelock.Interface]. It does nothing while the last renewal is
// recent.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	if lost {
		return errLost
	}
	if l.e.fresh() {
		return nil
	}
	l.mu.Lock()
	l.asked = true
	l.mu.Unlock()
	asked := time.Now()
	err := l.Interface.Update(ctx, record)
	if apierrors.IsNotFound(err) { // the Lease was deleted; the elector then creates it, as after Get
		return err
	}
	return l.renewed(asked, err)
}

// renewed records the result of a request that acquires or renews the Lease.
func (l *lock) renewed(asked time.Time, err error) error {
	if l.note(errRenew, err); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return errLost
	}
	l.leading = true
	l.e.grant(asked)
	return nil
}

// fresh reports whether the last renewal is so recent that another one is not due.
func (e *Election) fresh() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.granted != (elapsed.Moment{}) && e.granted.Age(time.Now()) < e.RetryPeriod-e.poll()/2
}

// note records and logs the result of a request, and whether the API server grants access.
func (l *lock) note(act, err error) {
	if errors.Is(err, context.Canceled) {
		return // the candidacy ended
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = nil // another candidate was faster
	}
	err = refusal.Explain(err)
	denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
	l.e.mu.Lock()
	switch {
	case denied:
		l.e.denied = fmt.Errorf("lease %s: %w; leader election needs an existing namespace, and get, create, and update on leases in it: grant them, or name another namespace in KUBERELAY_LEASE_NAMESPACE", l.Describe(), err)
	case err == nil:
		l.e.denied = nil
	}
	if l.e.failed = nil; err != nil {
		l.e.failed = fmt.Errorf("%w: %w", act, err)
	}
	l.e.mu.Unlock()
	l.mu.Lock()
	was, is := l.failing, err != nil
	l.failing = is
	l.mu.Unlock()
	switch {
	case is && !was && denied:
		l.e.Logger.Error("lease access denied; leader election needs an existing namespace, and get, create, and update on leases in it", "lease", l.Describe(), "err", err)
	case is && !was:
		l.e.Logger.Warn("cannot read or renew the lease, retrying", "lease", l.Describe(), "err", err)
	case was && !is:
		l.e.Logger.Info("lease can be read and renewed again", "lease", l.Describe())
	}
}

// debugHandler logs everything at level debug.
type debugHandler struct{ slog.Handler }

func (d debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{d.Handler.WithAttrs(attrs)}
}
func (d debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{d.Handler.WithGroup(name)}
}
