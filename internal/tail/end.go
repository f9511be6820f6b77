package tail

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// readToEnd yields events until it has yielded everything on the bus, or until yield returns an
// error. It returns that error unchanged, or nil for errEnough. Unlike a subscription, readToEnd
// does not wait for a bus that is missing or unreachable at the start. It continues after a later
// interruption. If the bus is unreachable, the error wraps [publish.ErrUnreachable]. o.Notify must
// be set.
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
			err = fmt.Errorf("%w: %w", publish.ErrUnreachable, err)
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
