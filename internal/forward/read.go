package forward

import (
	"context"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// readTimeout limits how long an update waits for its previous state.
const readTimeout = 5 * time.Second

// withLastState reads the state on the bus and then calls step, without blocking the worker. must
// means that the change cannot be published without that state. If must is false and too many reads
// are in progress, withLastState publishes the change without the state.
func (f *Forwarder) withLastState(ctx context.Context, c *event.Change, must bool, acked event.Acked, done func(again bool, err error)) {
	if !must {
		select {
		case f.reads <- struct{}{}:
		default:
			f.step(ctx, c, nil, acked, done)
			return
		}
	}
	f.Go(func() { // the number of these functions is limited, because the queue limits the keys in flight
		reading := ctx
		if !must {
			var cancel context.CancelFunc
			reading, cancel = context.WithTimeout(ctx, readTimeout)
			defer cancel()
		} else if !f.mayRead(ctx, done) {
			return
		}
		stored, err := f.History.At(reading, c.Key, acked.Position)
		<-f.reads
		if err != nil && must {
			f.Logger.Warn("cannot read the last state from the bus, retrying", append(attributes(c.Key), "err", err)...)
			f.unanswered(c.Key, acked, event.Acked{}, nil)
			done(false, err)
			return
		}
		// A load can find that the bus lost its latest events. The bus then reuses positions, so it
		// could store the change after an event other than acked.
		if f.Ledger.Get(c.Key) != acked {
			done(true, nil)
			return
		}
		f.step(ctx, c, stored.Object, acked, done)
	})
}

// mayRead waits until a read may begin. If ctx ends first, it calls done and returns false.
func (f *Forwarder) mayRead(ctx context.Context, done func(again bool, err error)) bool {
	select {
	case f.reads <- struct{}{}:
		return true
	case <-ctx.Done():
		done(false, ctx.Err())
		return false
	}
}
