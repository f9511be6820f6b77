package forward

import (
	"context"
	"errors"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// errUnseen makes the caller call Sync again after a backoff, because the watch might reach the
// version without a change that enqueues the key.
var errUnseen = errors.New("the watch has not reached the version of the event on the bus")

// unseenLimit limits how long a decision waits for the watch. A watch receives a bookmark about once a
// minute, but an aggregated API server might send none.
const unseenLimit = 3 * time.Minute

// syncForeign implements Sync for a foreign entry. It can block on the bus.
func (f *Forwarder) syncForeign(ctx context.Context, key event.Key, acked event.Acked, done func(again bool, err error)) {
	if !f.mayRead(ctx, done) {
		return
	}
	shown, err := f.History.At(ctx, key, acked.Position)
	<-f.reads
	if err != nil {
		f.Logger.Warn("cannot read the last event from the bus, retrying", append(attributes(key), "err", err)...)
		f.unanswered(key, acked, event.Acked{}, nil)
		done(false, err)
		return
	}
	ours := f.Ledger.IsAttempt(key, shown.Acked)
	if f.Ledger.Get(key) != acked { // a load has recognized the event meanwhile, and forgotten the attempts
		done(true, nil)
		return
	}
	reported := f.Informers.Reported(key) // read before the view, so that the view has every change up to this version
	view := f.Informers.Lookup(key)
	view.Reported = reported
	view.Waited = f.Now().Sub(view.Outlived.At) > unseenLimit
	adopt, c, reason := ledger.DecideForeign(key, view, acked, shown, ours)
	f.metrics.decisions.WithLabelValues(string(reason)).Inc()
	switch {
	case adopt != nil:
		f.Ledger.Adopt(key, acked, *adopt)
		if adopt.Live() && !isShown(view, adopt.UID) {
			f.unreported(key) // the tombstone of that UID might be gone
		}
		done(true, nil)
	case reason == ledger.ReasonUnseen:
		f.outcomes.failed(key, errUnseen, f.Now())
		done(false, errUnseen)
	case c == nil:
		if reason != ledger.ReasonHold {
			f.Recheck(key)
		}
		done(false, nil)
	default:
		c.Key, c.Resource = key, view.Resource
		f.step(ctx, c, nil, acked, done)
	}
}

// repaired records that the forwarder published an object's state again after a foreign event.
func (f *Forwarder) repaired(c event.Change) {
	f.metrics.foreign.Inc()
	f.foreign.Add(1)
	f.Logger.Warn("foreign event on the bus, published the object's state again", append(attributes(c.Key), "foreign_position", c.After, "type", c.Type.Short())...)
}

// ForeignEvents returns the number of foreign events that were repaired.
func (f *Forwarder) ForeignEvents() int { return int(f.foreign.Load()) }
