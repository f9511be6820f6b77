// Package deadline explains an expired deadline to the user of a command. The caller sets the deadline.
//
// [Explain] turns the error of a request that took too long into an [Error], which names the timeout
// and the flag that raises it. [Run] abandons a function that does not return in time.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Error is the error of a request that took too long. The server might be healthy but slow.
type Error struct {
	Timeout time.Duration
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("no response within %s; if the server is slow, raise --timeout: %v", e.Timeout, e.Err)
}
func (e *Error) Unwrap() error { return e.Err }

// Explain returns an [Error] if the deadline of ctx or of the request has passed, and err otherwise. A
// canceled ctx is not a deadline.
func Explain(ctx context.Context, err error, timeout time.Duration) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return &Error{timeout, err}
}

// Run returns the result of f. If ctx ends first, Run returns the cause of its cancellation, and f
// continues in the background.
func Run[T any](ctx context.Context, f func(context.Context) (T, error)) (result T, err error) {
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		result, err := f(ctx)
		answers <- answer{result, err}
	}()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}
