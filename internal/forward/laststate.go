package forward

import (
	"context"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// wantsLastState reports whether a change needs the state on the bus: for the last state of
// an object whose delete was inferred, or as the previous state of an update.
func wantsLastState(c *event.Change) bool {
	return c.Object == nil || c.Type == event.Updated && c.Before == nil
}

// readTimeout limits how long an update waits for its previous state.
const readTimeout = 5 * time.Second

// withLastState reads the state on the bus and then calls step, without blocking the
// worker. If too many reads are in progress, an update goes without its previous state.
func (f *Forwarder) withLastState(ctx context.Context, c *event.Change, acked event.Acked, done func(again bool, err error)) {
	needed := c.Object == nil || decides(c, acked)
	if !needed {
		select {
		case f.reads <- struct{}{}:
		default:
			f.step(ctx, c, nil, acked, done)
			return
		}
	}
	f.Go(func() { // the queue waits for done, and limits the number of these functions
		if needed {
			select {
			case f.reads <- struct{}{}:
			case <-ctx.Done():
				done(false, ctx.Err())
				return
			}
		}
		reading := ctx
		if !needed {
			var cancel context.CancelFunc
			reading, cancel = context.WithTimeout(ctx, readTimeout)
			defer cancel()
		}
		stored, err := f.History.At(reading, c.Key, acked.Position)
		<-f.reads
		last := stored.Object
		if last != nil && (last.Namespace != c.Key.Namespace || last.Name != c.Key.Name || !isStateOf(last, acked)) {
			last = nil
		}
		if err != nil && needed {
			f.Logger.Warn("cannot read the last state from the bus, retrying", append(attributes(c.Key), "err", err)...)
			done(false, err)
			return
		}
		f.step(ctx, c, last, acked, done)
	})
}

// isStateOf reports whether an object read from the bus is the state that the checkpoint
// names. The digest of a text cannot be computed from what is published.
func isStateOf(o *event.Object, acked event.Acked) bool {
	if string(o.UID) != acked.UID || o.ResourceVersion != acked.ResourceVersion {
		return false
	}
	if o.Body.None() || !acked.Digest.Projected() || !o.Digest.Projected() {
		return true
	}
	d, err := event.DigestOf(o.Body)
	return err == nil && d == o.Digest
}

// complete sets the fields that only the bus knows. It also sets the resource if nothing
// watches it any more, or not in the version of the last state.
func complete(c *event.Change, last *event.Object, acked event.Acked) {
	switch {
	case c.Object == nil && last != nil:
		c.Object = last
	case c.Object == nil:
		c.Object = acked.Identity(c.Key)
	case c.Type == event.Updated && c.Before == nil && last != nil && !last.Body.None():
		c.Before = last
	}
	// The watched version may have changed since the object was last seen.
	moved := c.Object.APIVersion != "" && c.Object.APIVersion != c.Resource.APIVersion()
	if c.Resource == (event.Resource{}) || moved {
		c.Resource = event.ResourceOf(c.Key, c.Object)
	}
}

// decides reports whether the state on the bus determines if an update is published at all.
// This is so if a projection now applies to the object, or if the digest of an unchanged
// version differs or is unknown, because another text can have the same content.
func decides(c *event.Change, acked event.Acked) bool {
	switch {
	case c.Type != event.Updated || acked.Digest.Projected():
		return false
	case c.Object.Digest.Projected():
		return true
	}
	return c.After != 0
}

// sameContent reports whether the bus holds the content of c. Versions of different epochs
// are not comparable.
func sameContent(c *event.Change, acked event.Acked) (bool, error) {
	switch {
	case c.Type != event.Updated || c.Epoch != acked.Epoch:
		return false, nil
	case acked.Digest.Projected() && !c.Object.Digest.Projected() && c.After != 0:
		d, err := event.DigestOf(c.Object.Body)
		return err == nil && d == acked.Digest, err
	case c.After != 0 && c.Before != nil && acked.Digest.Projected() && c.Object.Digest != acked.Digest && c.Object.Digest == c.Before.Digest:
		// The bus lost the event, and another forwarder has published this state at its position.
		return !c.Before.Body.None(), nil
	case !decides(c, acked) || c.Before == nil:
		return false, nil
	case c.Object.Digest.Projected():
		d, err := event.DigestOf(c.Before.Body)
		return err == nil && d == c.Object.Digest, err
	}
	return event.SameContent(c.Before.Body, c.Object.Body)
}
