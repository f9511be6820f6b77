package forward

import (
	"context"
	"fmt"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// wantsLastState tells whether a change is to be completed by what the bus has: the last
// state of an object whose delete was inferred, or that an update follows.
func wantsLastState(c *event.Change) bool {
	return c.Object == nil || c.Type == event.Updated && c.Before == nil
}

// readTimeout bounds how long an update waits for the state before it.
const readTimeout = 5 * time.Second

// withLastState takes the step when that state has been read, without keeping a worker. An
// update does without it where many are being read: it only says less then.
func (f *Forwarder) withLastState(ctx context.Context, c *event.Change, acked event.Acked, done func(again bool, err error)) {
	needed := c.Object == nil || decides(c, acked)
	select {
	case f.reads <- struct{}{}:
	default:
		if !needed {
			f.step(ctx, c, nil, acked, done)
			return
		}
		select {
		case f.reads <- struct{}{}:
		case <-ctx.Done():
			done(false, ctx.Err())
			return
		}
	}
	go func() { // the queue waits for done
		reading := ctx
		if !needed {
			var cancel context.CancelFunc
			reading, cancel = context.WithTimeout(ctx, readTimeout)
			defer cancel()
		}
		last, err := f.History.LastState(reading, c.Key, acked.Position)
		<-f.reads
		if last != nil && string(last.UID) != acked.UID {
			last = nil
		}
		if err != nil && needed {
			f.Logger.Warn("event cannot be made; will be tried again", append(attributes(c.Key), "err", fmt.Errorf("read the last state of %s from the bus: %w", c.Key, err))...)
			done(false, err)
			return
		}
		f.step(ctx, c, last, acked, done)
	}()
}

// complete fills in what only the bus knows, and the type where nothing watches the
// resource any more, or not in the version of the last state.
func complete(c *event.Change, last *event.Object, acked event.Acked) {
	switch {
	case c.Object == nil && last != nil:
		c.Object = last
	case c.Object == nil:
		c.Object = acked.Identity(c.Key)
	case c.Type == event.Updated && c.Before == nil && last != nil && !last.Body.None():
		c.Before = last
	}
	// A resource may have moved to another version since its object was last seen.
	moved := c.Object.APIVersion != "" && c.Object.APIVersion != c.Resource.APIVersion()
	if c.Resource == (event.Resource{}) || moved {
		c.Resource = event.ResourceOf(c.Key, c.Object)
	}
}

// decides tells whether it depends on the state that the bus has if an update is to be
// published at all: a projection has come to apply to the object.
func decides(c *event.Change, acked event.Acked) bool {
	return c.Type == event.Updated && !c.Object.Digest.None() && acked.Digest.None()
}

// sameContent tells whether the bus has what is to be sent of an object, where a projection
// has come to apply to it, or does not apply any more. What it has of an earlier epoch has a
// version of another history.
func sameContent(c *event.Change, acked event.Acked) (bool, error) {
	switch {
	case c.Epoch != acked.Epoch:
		return false, nil
	case decides(c, acked) && c.Before != nil:
		d, err := event.DigestOf(c.Before.Body)
		return err == nil && d == c.Object.Digest, err
	case c.Type == event.Updated && c.After != 0 && c.Object.Digest.None() && !acked.Digest.None():
		d, err := event.DigestOf(c.Object.Body)
		return err == nil && d == acked.Digest, err
	}
	return false, nil
}
