// Package forward decides what the bus must be told of one key, and tells it.
//
// [Decide] is the decision, a pure function. [Forwarder.Sync] is the way of one
// key: look up, decide, wrap, publish, record. The package knows nothing of
// queues, clusters or brokers; what it needs of them are the interfaces below.
//
// It guarantees that the checkpoint is never ahead of the bus: an entry is
// written after the acknowledgement and before the key is completed. It does
// not retry: a failed key is given back to the queue, and is decided anew when
// it returns, with what is known then.
package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// Informers is what the forwarder asks of the informers.
type Informers interface {
	// Lookup gives what is known of a key, without blocking.
	Lookup(event.Key) event.View
	// Settle says that the bus now holds acked of this key, so that the
	// tombstones and marks which that covers can be dropped.
	//
	// Attempted is a UID that the bus may show although nobody has said so, ""
	// for none; its tombstone stays.
	Settle(key event.Key, acked event.Acked, attempted string)
	// Acknowledged says that the bus now holds an event of this key, and which state that
	// is of: Settle, and what the next event is to be compared with.
	Acknowledged(key event.Key, acked event.Acked, state *event.Object)
	// Unpublishable says that the bus cannot be told of the present state of this
	// key, however often it is tried.
	Unpublishable(event.Key)
}

// Checkpoint is what the bus has acknowledged, per object.
type Checkpoint interface {
	Get(event.Key) event.Acked
	Put(event.Key, event.Acked)
}

// Publish hands a message to the bus; publish.Publisher has its contract, this
// package its outcome.
type Publish func(ctx context.Context, m *event.Message, done func(Outcome))

// Outcome is what became of a publish. At most one of its errors is set.
type Outcome struct {
	Position uint64 // where the bus keeps the event, if Err is nil

	// Err is why the event is not known to be stored.
	Err error
	// NotSent: Err is about a message that certainly is not stored.
	NotSent bool
	// TooLarge: Err is that the bus will never take a message of this size.
	TooLarge bool
	// Conflict, with Err set, is what the bus holds instead of what the message
	// expected, the zero value for nothing.
	Conflict *event.Acked
}

// History reads back from the bus.
type History interface {
	// LastState gives the object of the event at a position, nil without an
	// error where the bus does not have it any more. It may block on the bus.
	LastState(ctx context.Context, key event.Key, position uint64) (*event.Object, error)
}

// Config holds what a Forwarder is made of; every field is required.
type Config struct {
	Informers  Informers
	Checkpoint Checkpoint
	Publish    Publish
	History    History
	// Doubt is told of a key of which the bus has a later state than the
	// informers. It must not block.
	Doubt func(event.Key)
	// Lost tells whether a bus that holds nothing of an object that the checkpoint
	// knows has lost it. Otherwise another writer may have published its delete, and
	// removed that when its retention was over.
	Lost       func() bool
	Builder    event.Builder
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Forwarder keeps the bus in step with the informers, one key at a time. It may be
// used by many goroutines at once, each with another key.
type Forwarder struct {
	Config
	metrics  *metrics
	attempts attempts
	reads    chan struct{} // one for each read of the bus that is under way
}

// maxReads are read from the bus at once. Where a bus is far away one takes as long as many
// publishes, so they do not keep the workers.
const maxReads = 16

// New makes a Forwarder.
func New(c Config) *Forwarder {
	return &Forwarder{Config: c, metrics: newMetrics(c.Registerer), reads: make(chan struct{}, maxReads)}
}

// Sync brings the bus one step closer to the present state of key, and calls done
// exactly once, possibly after it has returned. With again, another step may be
// due; with an error, the step failed and the key must come back later.
func (f *Forwarder) Sync(ctx context.Context, key event.Key, done func(again bool, err error)) {
	failpoint.Hit("key-taken")
	view, acked := f.Informers.Lookup(key), f.Checkpoint.Get(key)
	change, reason := Decide(view, acked, f.attempts.uid(key))
	f.metrics.decisions.WithLabelValues(string(reason)).Inc()
	if change == nil {
		switch reason {
		case ReasonUnchanged:
			f.unchanged(key, view.Live, acked)
		case ReasonGone:
			f.Informers.Settle(key, acked, "")
		case ReasonStale:
			f.Doubt(key)
		}
		done(false, nil)
		return
	}
	if reason == ReasonUncertain {
		over := done
		done = func(again bool, err error) { over(again || err == nil, err) } // that it is gone is due
	}
	change.Key, change.Resource = key, view.Resource
	if acked.Position == 0 || !wantsLastState(change) {
		f.step(ctx, change, nil, acked, done)
		return
	}
	f.withLastState(ctx, change, acked, done)
}

// step publishes a change, last being the state that the bus has, where it was read.
func (f *Forwarder) step(ctx context.Context, c *event.Change, last *event.Object, acked event.Acked, done func(again bool, err error)) {
	complete(c, last, acked)
	switch same, err := sameContent(c, acked); {
	case err != nil:
		f.Logger.Warn("cannot tell whether an object is on the bus as it is to be sent; it is sent", append(attributes(c.Key), "err", err)...)
	case same:
		f.unchanged(c.Key, c.Object, acked)
		done(false, nil)
		return
	}
	f.publish(ctx, *c, acked, done)
}

// unchanged settles a key of which the bus has what is to be sent of its present state.
func (f *Forwarder) unchanged(key event.Key, live *event.Object, acked event.Acked) {
	if acked.Digest != live.Digest { // which is known now
		acked.Digest = live.Digest
		f.Checkpoint.Put(key, acked)
	}
	acked.ResourceVersion = live.ResourceVersion // a later one may differ in what is not sent
	f.Informers.Settle(key, acked, "")
}

func attributes(k event.Key) []any {
	return []any{"resource", k.GroupResource().String(), "namespace", k.Namespace, "name", k.Name}
}

func (f *Forwarder) publish(ctx context.Context, c event.Change, acked event.Acked, done func(again bool, err error)) {
	m, err := f.Builder.Message(c)
	if err != nil {
		f.Logger.Error("event cannot be made; the object stays unpublished", append(attributes(c.Key), "err", err)...)
		f.Informers.Unpublishable(c.Key)
		done(false, err)
		return
	}
	m.Expected = acked.Position
	if failpoint.Bug("random-ids") {
		m.ID = rand.Text()
		m.Attributes[0].Value = m.ID
	}
	if failpoint.Bug("acknowledge-before-publish") {
		f.record(c, m)
		done(false, nil)
		f.Publish(ctx, m, func(Outcome) {})
		return
	}
	failpoint.Hit("before-publish")
	f.Publish(ctx, m, func(o Outcome) {
		if o.Err == nil {
			f.acknowledged(ctx, c, m, o.Position)
			done(c.Type.Gone(), nil)
			return
		}
		f.failed(ctx, c, acked, m, o, done)
	})
	failpoint.Hit("after-publish")
}

// acknowledged records that the bus holds an event.
func (f *Forwarder) acknowledged(ctx context.Context, c event.Change, m *event.Message, position uint64) {
	failpoint.Hit("after-ack")
	f.attempts.resolved(c.Key)
	m.Acked.Position, m.Acked.Stored = position, uint32(time.Now().Unix())
	f.record(c, m)
	if f.Logger.Enabled(ctx, slog.LevelDebug) {
		f.Logger.DebugContext(ctx, "event acknowledged", append(attributes(c.Key), "event_id", m.ID, "type", c.Type, "position", position)...)
	}
	m.Free()
}

// failed finds out what is to be done about a publish that ended with an error.
func (f *Forwarder) failed(ctx context.Context, c event.Change, acked event.Acked, m *event.Message, o Outcome, done func(again bool, err error)) {
	log := f.Logger.With(append(attributes(c.Key), "event_id", m.ID)...)
	if !o.NotSent && !o.TooLarge && !c.Type.Gone() {
		f.attempts.unresolved(c.Key, m.Acked.UID)
	}
	if o.Conflict == nil {
		// While the bus is down a name may be taken again and again: only the
		// deletes that the bus has to be told are worth their memory.
		f.Informers.Settle(c.Key, acked, f.attempts.uid(c.Key))
	}
	switch {
	case o.Conflict != nil:
		f.metrics.conflicts.Inc()
		f.attempts.resolved(c.Key) // the bus is past the position that the attempt expects
		log.Warn("the bus holds another event than expected; deciding again", "bus_version", o.Conflict.ResourceVersion, "expected_position", m.Expected, "bus_position", o.Conflict.Position)
		if failpoint.Bug("adopt-position-blindly") {
			acked.Position = o.Conflict.Position
			o.Conflict = &acked
		}
		if c.Type.Gone() && *o.Conflict == (event.Acked{}) && f.Lost() {
			// Who reads along has seen the object, so it must see the delete.
			acked.Position = 0
			o.Conflict = &acked
		}
		f.Checkpoint.Put(c.Key, *o.Conflict)
		f.Doubt(c.Key) // another writer, or an attempt of ours: it may show what is gone
		done(true, nil)
	case o.TooLarge && c.Before != nil && f.Builder.Data == event.DataChange:
		log.Debug("object and its state before are too large together for the bus; publishing the object only", "bytes", len(m.Data))
		c.Before = nil
		f.publish(ctx, c, acked, done)
	case o.TooLarge && !c.Truncated && !c.Object.Body.None():
		f.metrics.truncated.WithLabelValues(c.Key.GroupResource().String()).Inc()
		log.Warn("object is too large for the bus; publishing its metadata only", "bytes", len(m.Data))
		c.Truncated = true
		f.publish(ctx, c, acked, done)
	case o.TooLarge:
		log.Error("even the metadata of the object is too large for the bus; it stays unpublished", "bytes", len(m.Data))
		f.Informers.Unpublishable(c.Key)
		done(false, o.Err)
	case errors.Is(o.Err, context.Canceled):
		done(false, o.Err)
	case failpoint.Bug("give-up"):
		done(false, nil)
	case o.NotSent: // the bus is away: one line of the bus's own says so
		log.Debug("not published; will be tried again", "err", o.Err)
		done(false, o.Err)
	default:
		log.Warn("publish failed; will be tried again", "err", o.Err)
		done(false, o.Err)
	}
}

func (f *Forwarder) record(c event.Change, m *event.Message) {
	// The key as the cached object has it: the checkpoint keeps its strings.
	f.Checkpoint.Put(event.Key{Group: c.Resource.Group, Resource: c.Resource.Resource, Namespace: c.Object.Namespace, Name: c.Object.Name}, m.Acked)
	f.Informers.Acknowledged(c.Key, m.Acked, c.Object)
	f.metrics.published.WithLabelValues(c.Key.GroupResource().String(), c.Type.Short()).Inc()
	f.metrics.lag.Observe(time.Since(c.Observed).Seconds())
}
