package publish

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Put publishes a message and waits for the acknowledgement.
func Put(ctx context.Context, to Publisher, m *event.Message) (err error) {
	result := make(chan error, 1)
	to.Publish(ctx, m, func(_ uint64, err error) { result <- err })
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", m.ID, err)
	}
	return nil
}
