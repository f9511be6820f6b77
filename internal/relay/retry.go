package relay

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

var retryBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.3, Steps: 1 << 30, Cap: 10 * time.Second}

// retry calls try with back-off until it succeeds. failed gets each error; if it returns an
// error, a retry cannot succeed, and retry returns that error. retry also returns an error
// when ctx ends.
func retry(ctx context.Context, try func() error, failed func(error) error) error {
	backoff := retryBackoff
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		}
		if permanent := failed(err); permanent != nil {
			return permanent
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}
