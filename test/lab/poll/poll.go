// Package poll repeats a check until it succeeds. Use it to wait for a state that changes without a
// notification.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	interval = 20 * time.Millisecond
	limit    = 3 * time.Minute // of a test; a busy machine is slow
)

// Until repeats try until it succeeds. If ctx ends or the limit passes first, Until returns the last
// error of try.
func Until(ctx context.Context, limit time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // after the end of ctx, an error only says that ctx ended
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, last)
		case <-ticker.C:
		}
	}
}

// Try repeats try until it succeeds. After three minutes, it fails t with the last error. A cleanup of t may
// call Try, although the context of t has ended.
func Try(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	if err := Until(context.WithoutCancel(t.Context()), limit, what, try); err != nil {
		t.Fatal(err)
	}
}

// Holds repeats holds until it returns true. After three minutes, it fails t.
func Holds(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Try(t, what, func(context.Context) error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}
