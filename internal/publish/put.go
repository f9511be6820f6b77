package publish

import (
	"context"
	"fmt"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Put publishes a message and waits for the acknowledgement. Its error names the message.
func Put(ctx context.Context, to Publisher, m *event.Message) error {
	result := make(chan error, 1)
	to.Publish(ctx, m, func(_ uint64, err error) { result <- err })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("publish %s: %w", m.ID, ctx.Err())
	}
}
