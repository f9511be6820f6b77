package forward

import (
	"context"
	"log/slog"

	"github.com/kuberelay/kuberelay/internal/event"
)

// form is a smaller form of an event that was too large for the bus. Each form leaves out more.
type form int

const (
	none form = iota // no smaller form exists
	withoutBefore
	metadataOnly
	identityOnly
)

// smallerForm returns the next form in which to publish a change that is too large.
func (f *Forwarder) smallerForm(c event.Change) form {
	switch {
	case c.Before != nil && f.Builder.Data == event.DataChange:
		return withoutBefore
	case c.Object.Body.None():
		return none
	case !c.Truncated:
		return metadataOnly
	case c.Type.IsRemoval(): // a removal must not be lost
		return identityOnly
	}
	return none
}

// truncate publishes only the metadata of the object. If c.Present is set, the bus already has the
// truncated event, and truncate adopts that event instead.
func (f *Forwarder) truncate(ctx context.Context, c event.Change, acked event.Acked, log *slog.Logger, done func(again bool, err error)) {
	if c.Present != nil {
		f.Ledger.Adopt(c.Key, acked, *c.Present)
		done(true, nil)
		return
	}
	level := f.once(c.Key, slog.LevelWarn)
	if level == slog.LevelWarn {
		f.outcomes.truncate(c.Key.GroupResource())
	}
	log.Log(ctx, level, "object is too large for the bus, publishing its metadata only")
	c.Truncated = true
	f.publish(ctx, c, acked, done)
}

// once returns the level for a log message about the current state of a key. If the state is already
// known to be unpublishable, the level is debug, because the queue retries that state forever.
func (f *Forwarder) once(key event.Key, level slog.Level) slog.Level {
	if f.Informers.Lookup(key).Unpublishable {
		return slog.LevelDebug
	}
	return level
}
