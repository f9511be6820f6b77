package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil verifies that Until repeats its function until it succeeds, and returns the last error of the
// function at the limit, not the end of the context.
func TestUntil(t *testing.T) {
	notYet := errors.New("not yet")
	for name, c := range map[string]struct {
		succeeds int // the call that succeeds, 0 for none
		calls    int
	}{
		"at once": {1, 1}, "later": {3, 3}, "never": {0, int(time.Second/interval) + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := Until(t.Context(), time.Second+interval/2, "it is ready", func(ctx context.Context) error {
					if calls++; calls == c.succeeds {
						return nil
					}
					return errors.Join(notYet, ctx.Err())
				})
				if calls != c.calls || (err == nil) != (c.succeeds > 0) || err != nil && (!errors.Is(err, notYet) || errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("got %v after %d calls, want %d", err, calls, c.calls)
				}
			})
		})
	}
}

// TestUntilKeepsTheReason verifies that Until returns the last error from before the end of the context. An
// error after it says only that the context ended.
func TestUntilKeepsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notYet, calls := errors.New("not yet"), 0
		err := Until(t.Context(), time.Second, "it is ready", func(ctx context.Context) error {
			if calls++; calls == 1 {
				return notYet
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, notYet) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the error of the first call", err)
		}
	})
}

// TestTryInACleanup verifies that Try repeats its function in a cleanup, where the context of the test has ended.
func TestTryInACleanup(t *testing.T) {
	calls := 0
	t.Run("it cleans up", func(t *testing.T) {
		t.Cleanup(func() {
			Try(t, "the third call succeeds", func(ctx context.Context) error {
				if calls++; calls < 3 {
					return errors.New("not yet")
				}
				return ctx.Err()
			})
		})
	})
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}
