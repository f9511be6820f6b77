package forward

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// syncForeign is Sync for a foreign entry. It may block on the bus.
func (f *Forwarder) syncForeign(ctx context.Context, key event.Key, acked event.Acked, done func(again bool, err error)) {
	select {
	case f.reads <- struct{}{}:
	case <-ctx.Done():
		done(false, ctx.Err())
		return
	}
	shown, err := f.History.At(ctx, key, acked.Position)
	<-f.reads
	if err != nil {
		f.Logger.Warn("cannot read the last event from the bus, retrying", append(attributes(key), "err", err)...)
		done(false, err)
		return
	}
	view := f.Informers.Lookup(key)
	adopt, c, reason := DecideForeign(key, view, acked, shown, f.Ledger.IsAttempt(key, shown.Acked))
	f.metrics.decisions.WithLabelValues(string(reason)).Inc()
	switch {
	case adopt != nil:
		f.Ledger.Adopt(key, acked, *adopt)
		if adopt.Live() && (view.Live == nil || string(view.Live.UID) != adopt.UID) {
			f.Recheck(key) // its tombstone may be settled
		}
		done(true, nil)
	case c == nil:
		if reason != ReasonHold {
			f.Recheck(key)
		}
		done(false, nil)
	default:
		c.Key, c.Resource = key, view.Resource
		complete(c, nil, acked)
		f.publish(ctx, *c, acked, done)
	}
}

// foreignLog limits the log of foreign events, which somebody else causes.
type foreignLog struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
	count      int // of all
}

const foreignLogInterval = 10 * time.Second

// repaired records that the bus has the state of an object again.
func (f *Forwarder) repaired(c event.Change) {
	f.metrics.foreign.Inc()
	f.foreign.warn(f.Logger, f.Now(), append(attributes(c.Key), "foreign_position", c.After, "type", c.Type.Short()))
}

// ForeignEvents returns the number of foreign events that were repaired.
func (f *Forwarder) ForeignEvents() int {
	f.foreign.mu.Lock()
	defer f.foreign.mu.Unlock()
	return f.foreign.count
}

func (l *foreignLog) warn(log *slog.Logger, now time.Time, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if now.Sub(l.last) < foreignLogInterval {
		l.suppressed++
		return
	}
	log.Warn("foreign event on the bus, published the object's state again", append(args, "suppressed", l.suppressed)...)
	l.last, l.suppressed = now, 0
}
