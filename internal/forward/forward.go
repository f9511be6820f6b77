// Package forward publishes the changes that [ledger.Decide] returns.
//
// [Forwarder.Sync] processes one key: it looks up the key, decides, builds the event, publishes it,
// and records the result. The package does not depend on queues, clusters, or brokers. It uses them
// only through the interfaces below.
//
// The ledger is never ahead of the bus: Sync records an event after the acknowledgement and before
// it completes the key. Sync does not retry. A failed key returns to the queue, and the next Sync
// decides again.
package forward

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// Informers provides the state of the cluster.
type Informers interface {
	// Lookup returns the current view of a key, with its record in the ledger (see
	// [ledger.Ledger.Describe]). It does not block.
	Lookup(event.Key) event.View
	// Reported returns a version, or "" if unknown. A view that Lookup returns after this call
	// includes every change of the key up to that version. It does not block.
	Reported(event.Key) string
	// Interest reports whether an object of this key belongs on the bus. It does not block.
	Interest(event.Key) ledger.Interest
	// Shown returns the UID of the object that the informers show, or "" if they show none that is
	// selected. It does not block.
	Shown(event.Key) string
	// Settled is called when the bus might have received changes of this key that it lacked.
	Settled(event.Key)
	// Unreported is called when the bus has acknowledged an event of an object that the informers
	// have forgotten. The informers might never report the object's delete, so a consistency point
	// needs a comparison first.
	Unreported(event.Key)
	// Unpublishable is called when the current state of this key cannot be published and a retry
	// cannot help.
	Unpublishable(event.Key)
}

// Ledger records the last event of each key on the bus. See [ledger.Term] for the methods.
type Ledger interface {
	Get(event.Key) event.Acked
	IsAttempt(key event.Key, bus event.Acked) bool
	Replace(key event.Key, was, is event.Acked) bool
	Settle(key event.Key, acked event.Acked, of ledger.Interest, shown string)
	Acknowledge(key event.Key, acked event.Acked, state *event.Object, of ledger.Interest) (reported bool)
	Unanswered(key event.Key, acked, sent event.Acked, c *event.Change, of ledger.Interest)
	Conflict(c event.Change, acked, bus event.Acked, lost bool)
	Adopt(key event.Key, was, is event.Acked)
}

var _ Ledger = (*ledger.Term)(nil)

// Publish sends a message to the bus, like [publish.Publisher].
type Publish func(ctx context.Context, m *event.Message, done func(position uint64, err error))

// History reads events from the bus.
type History interface {
	// At returns the event of an object at a position. If the bus no longer has the event, At
	// returns the zero value without an error. It can block on the bus.
	At(ctx context.Context, key event.Key, position uint64) (publish.Stored, error)
}

// Config configures a [Forwarder]. Every field is required unless its comment says otherwise.
type Config struct {
	Informers Informers
	Ledger    Ledger
	Publish   Publish
	History   History
	// Recheck schedules a comparison of a key with the cluster. It is called if the informers
	// cannot explain the key's event on the bus. It must not block.
	Recheck func(event.Key)
	// Lost explains why an object has an entry in the checkpoint but no event on the bus. It
	// returns true if the bus must have lost the events, and false if another writer might have
	// published the delete and purged it after the retention period. Lost is called after each
	// conflict.
	Lost    func() bool
	Builder event.Builder
	// Published is called for each acknowledged event with its version and two times: when the
	// change was observed and when the event was acknowledged. It is optional. Calls are
	// concurrent and must not block.
	Published func(key event.Key, of event.Type, version string, observed, acknowledged time.Time)
	// Go runs a function that can block on the bus, without waiting for it.
	Go         func(func())
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Forwarder publishes the changes of keys. Several goroutines can use a Forwarder at once if each
// uses a different key.
type Forwarder struct {
	Config
	metrics  *metrics
	reads    chan struct{} // holds one token for each read in progress
	foreign  atomic.Int64  // foreign events that were repaired
	outcomes *outcomes
}

// maxReads limits the concurrent reads from the bus. On a distant bus, one read takes as long as
// many publishes, so reads do not run in the workers.
const maxReads = 16

// New returns a Forwarder.
func New(c Config) *Forwarder {
	m := newMetrics(c.Registerer)
	return &Forwarder{Config: c, metrics: m, reads: make(chan struct{}, maxReads), outcomes: &outcomes{metrics: m}}
}

// Sync publishes at most one change of key, and calls done exactly once, possibly after Sync has
// returned. If again is true, another change might be due. If err is not nil, the change was not
// acknowledged, and the caller must call Sync for the key again later.
func (f *Forwarder) Sync(ctx context.Context, key event.Key, done func(again bool, err error)) {
	failpoint.Hit("key-taken")
	view := f.Informers.Lookup(key)
	acked := view.Acked
	if acked.Foreign {
		f.Go(func() { f.syncForeign(ctx, key, acked, done) })
		return
	}
	change, reason := ledger.Decide(view)
	f.metrics.decisions.WithLabelValues(string(reason)).Inc()
	if change == nil {
		f.outcomes.of(key.GroupResource()).resolve(key)
		switch reason {
		case ledger.ReasonUnchanged:
			f.unchanged(key, view.Live, acked)
		case ledger.ReasonGone:
			acked.Position = 0 // no object exists, so drop the finding that one outlived the delete
			f.settle(key, acked)
		case ledger.ReasonStale, ledger.ReasonDenied:
			f.Recheck(key)
		}
		done(false, nil)
		return
	}
	change.Key, change.Resource = key, view.Resource
	if reason == ledger.ReasonUncertain {
		f.step(ctx, change, nil, acked, func(again bool, err error) { done(again || err == nil, err) }) // a delete might follow
		return
	}
	if needs, must := ledger.NeedsState(change, acked); needs {
		f.withLastState(ctx, change, must, acked, done)
		return
	}
	f.step(ctx, change, nil, acked, done)
}

// step publishes a change, unless the bus already has the content. last is the state on the bus, or
// nil if it was not read.
func (f *Forwarder) step(ctx context.Context, c *event.Change, last *event.Object, acked event.Acked, done func(again bool, err error)) {
	switch same, err := ledger.Complete(c, last, acked); {
	case err != nil:
		f.Logger.Warn("comparison with the state on the bus failed, publishing the object", append(attributes(c.Key), "err", err)...)
	case same:
		f.outcomes.of(c.Key.GroupResource()).resolve(c.Key)
		f.unchanged(c.Key, c.Object, acked)
		done(false, nil)
		return
	}
	f.publish(ctx, *c, acked, done)
}

// unchanged settles a key whose current state is on the bus.
func (f *Forwarder) unchanged(key event.Key, live *event.Object, acked event.Acked) {
	if was := acked; acked.Digest != live.Digest { // the content is equal although the digests differ
		acked.Digest = live.Digest
		f.Ledger.Replace(key, was, acked)
	}
	acked.ResourceVersion = live.ResourceVersion // the live version can differ only in unpublished fields
	f.settle(key, acked)
}

func (f *Forwarder) publish(ctx context.Context, c event.Change, acked event.Acked, done func(again bool, err error)) {
	timed := c
	timed.Observed = acked.NotBefore(c.Observed, f.Now())
	m, err := f.Builder.Message(timed)
	if errors.Is(err, event.ErrTooDeep) {
		f.truncate(ctx, c, acked, f.Logger.With(append(attributes(c.Key), "err", err)...), done)
		return
	}
	if err != nil {
		f.Logger.Log(ctx, f.once(c.Key, slog.LevelError), "cannot build the event, object stays unpublished", append(attributes(c.Key), "err", err)...)
		f.Informers.Unpublishable(c.Key)
		f.outcomes.failed(c.Key, err, f.Now())
		done(false, err)
		return
	}
	m.Expected = acked.Position
	failpoint.Hit("before-publish")
	f.Publish(ctx, m, func(position uint64, err error) {
		if err == nil {
			f.acknowledged(ctx, c, m, position)
			done(c.Type.IsRemoval(), nil)
			return
		}
		f.failed(ctx, c, acked, m, err, done)
	})
	failpoint.Hit("after-publish")
}

// acknowledged records that the bus holds an event.
func (f *Forwarder) acknowledged(ctx context.Context, c event.Change, m *event.Message, position uint64) {
	failpoint.Hit("after-ack")
	m.Acked.Position = position
	m.Acked.StoredAt(f.Now())
	if reported := f.record(c, m); !reported && !c.Type.IsRemoval() {
		f.unreported(c.Key)
	}
	if c.Repairs {
		f.repaired(c)
	}
	if f.Logger.Enabled(ctx, slog.LevelDebug) {
		f.Logger.DebugContext(ctx, "event acknowledged", append(attributes(c.Key), "event_id", m.ID, "type", c.Type, "position", position)...)
	}
	m.Free()
}

// failed handles a publish that ended with an error.
func (f *Forwarder) failed(ctx context.Context, c event.Change, acked event.Acked, m *event.Message, err error, done func(again bool, err error)) {
	log := f.Logger.With(append(attributes(c.Key), "event_id", m.ID)...)
	fail := func() {
		f.outcomes.failed(c.Key, withoutID{err, m.ID}, f.Now())
		done(false, err)
	}
	tooLarge, notSent := errors.Is(err, publish.ErrTooLarge), errors.Is(err, publish.ErrNotSent)
	var conflict *publish.ConflictError
	errors.As(err, &conflict)
	smaller := none
	if tooLarge {
		smaller = f.smallerForm(c)
	}
	if conflict == nil && smaller == none { // otherwise another publish follows, or the conflict is recorded below
		var sent event.Acked
		if !notSent && !tooLarge {
			sent = m.Acked
		}
		f.unanswered(c.Key, acked, sent, &c)
	}
	switch {
	case conflict != nil:
		bus := conflict.Bus
		f.metrics.conflicts.Inc()
		log.Warn("publish conflict, deciding again", "bus_version", bus.ResourceVersion, "expected_position", m.Expected, "bus_position", bus.Position)
		f.conflict(c, acked, bus)
		if c.Repairs {
			fail() // the foreign writer is still writing: repair with a backoff
			return
		}
		done(true, nil)
	case smaller == withoutBefore:
		log.Debug("object with its previous state is too large for the bus, publishing the object only", "bytes", len(m.Data))
		c.Before = nil
		f.publish(ctx, c, acked, done)
	case smaller == metadataOnly:
		f.truncate(ctx, c, acked, log.With("bytes", len(m.Data)), done)
	case smaller == identityOnly:
		log.Warn("metadata of a deleted object is too large for the bus, publishing its identity only", "bytes", len(m.Data))
		c.Object = m.Acked.Identity(c.Key)
		f.publish(ctx, c, acked, done)
	case tooLarge:
		log.Log(ctx, f.once(c.Key, slog.LevelError), "object metadata is too large for the bus, object stays unpublished", "bytes", len(m.Data), "err", err)
		f.Informers.Unpublishable(c.Key)
		fail()
	case errors.Is(err, context.Canceled):
		done(false, err)
	case notSent: // the bus is unavailable, which the publisher logs once
		log.Debug("publish failed, retrying", "err", err)
		fail()
	default:
		log.Warn("publish failed, retrying", "err", err)
		fail()
	}
}
