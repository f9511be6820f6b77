package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/clientgo/resourcelock"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// lock is the Lease as client-go's elector sees it during one candidature. It notes when
// a renewal was asked for, and ends the leadership at the first sign that somebody else
// has had the Lease in between.
type lock struct {
	resourcelock.Interface
	e    *Election
	over func() // ends the candidature

	mu      sync.Mutex
	leading bool // since the Lease became ours, and for good
	lost    bool
	failing bool // the last request failed, and this was logged
}

var _ resourcelock.Interface = (*lock)(nil)

var errLost = errors.New("the leadership is over")

func (l *lock) led() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// Get is part of [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) { // it is to be created, and whether it may be is said then
		l.e.observe("")
		return nil, nil, err
	}
	if l.note(err); err != nil {
		return nil, nil, err
	}
	l.e.observe(record.HolderIdentity)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading && record.HolderIdentity != l.e.Identity && !failpoint.Bug("trust-lease") {
		return nil, nil, l.lose(record.HolderIdentity)
	}
	return record, raw, nil
}

// lose ends the leadership. The elector is kept from getting the Lease back in the same
// candidature.
func (l *lock) lose(to string) error {
	if !l.lost {
		l.lost = true
		l.e.revoke()
		l.e.Logger.Warn("the lease was lost", "lease", l.Describe(), "leader", to)
		l.over()
	}
	return errLost
}

// Create is part of [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lost := l.leading // somebody has deleted it, and anybody may have had it since
	if lost {
		defer l.mu.Unlock()
		return l.lose("")
	}
	l.mu.Unlock()
	return l.renewed(l.e.Now(), l.Interface.Create(ctx, record))
}

// Update is part of [resourcelock.Interface]. Where the last renewal is not due to be
// repeated yet it does nothing.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	if lost {
		return errLost
	}
	asked := l.e.Now()
	if l.e.fresh(asked) {
		return nil
	}
	return l.renewed(asked, l.Interface.Update(ctx, record))
}

// renewed notes what became of a request that makes the Lease ours.
func (l *lock) renewed(asked time.Time, err error) error {
	if l.note(err); err != nil {
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

// fresh tells whether the last renewal need not be repeated yet.
func (e *Election) fresh(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.granted.IsZero() && elapsed(e.granted, now) < e.RetryPeriod-e.poll()/2
}

// note keeps and logs whether the API server lets us.
func (l *lock) note(err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		err = nil // another was faster
	}
	refused := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
	l.e.mu.Lock()
	switch {
	case refused:
		l.e.refused = fmt.Errorf("lease %s: %w; it takes a namespace, and to be let get, create and update the lease", l.Describe(), err)
	case err == nil:
		l.e.refused = nil
	}
	l.e.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return // the candidature is over
	}
	l.mu.Lock()
	was, is := l.failing, err != nil
	l.failing = is
	l.mu.Unlock()
	switch {
	case is && !was && refused:
		l.e.Logger.Error("the lease is refused; it takes a namespace, and to be let get, create and update the lease", "lease", l.Describe(), "err", err)
	case is && !was:
		l.e.Logger.Warn("the lease cannot be read or renewed; will be tried again", "lease", l.Describe(), "err", err)
	case was && !is:
		l.e.Logger.Info("the lease can be read or renewed again", "lease", l.Describe())
	}
}

// demoted logs at the debug level what client-go finds worth more.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}
func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
