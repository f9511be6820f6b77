package forward

import (
	"context"
	"log/slog"

	"github.com/kuberelay/kuberelay/internal/event"
)

// form says what the event of a change leaves out, because the event before it was too large for the bus.
type form int

const (
	none form = iota // there is no smaller event
	withoutBefore
	metadataOnly
	identityOnly
)

// smallerForm returns the form in which a change that is too large is published next.
func (f *Forwarder) smallerForm(c event.Change) form {
	switch {
	case c.Before != nil && f.Builder.Data == event.DataChange:
		return withoutBefore
	case c.Object.Body.None():
		return none
	case !c.Truncated:
		return metadataOnly
	case c.Type.IsRemoval(): // a delete must not be lost
		return identityOnly
	}
	return none
}

// truncate publishes only the identity and the metadata of the object, unless the bus has them.
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

// once returns the level of a message about the present state of a key: debug if the state
// was found unpublishable before, because the queue retries it forever.
func (f *Forwarder) once(key event.Key, level slog.Level) slog.Level {
	if f.Informers.Lookup(key).Unpublishable {
		return slog.LevelDebug
	}
	return level
}
