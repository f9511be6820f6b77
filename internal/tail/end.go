package tail

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// ErrUnreachable is in the chain of the error if the bus does not answer.
var ErrUnreachable = errors.New("it cannot be reached")

// readToEnd yields events until everything that the bus holds was yielded, or yield returns an
// error, which it returns unchanged except for errEnough. Unlike a subscription, it does not wait
// for a bus that is missing or unreachable. After an interruption it continues. o.Notify must be
// set.
func readToEnd(ctx context.Context, bus Bus, o publish.SubscribeOptions, yield func(*event.Message, publish.Delivery) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	read, notify := false, o.Notify
	o.Notify = func(err error) {
		read = read || err == nil
		if read {
			notify(err)
			return
		}
		if !errors.Is(err, publish.ErrMissing) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		cancel(fmt.Errorf("read the bus: %w", err))
	}
	o.CaughtUp = func(publish.Cursor) error { return errEnough }
	err := bus.Subscribe(ctx, o, yield)
	switch {
	case err == errEnough: //nolint:errorlint // Subscribe returns it unchanged
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
