// Package retry repeats the requests that must succeed before a forwarder can publish. They go to the
// API server and to the bus, which might be unavailable for hours. The caller decides which errors are
// permanent.
package retry

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.3, Steps: 1 << 30, Cap: 10 * time.Second}

// Until calls try with backoff until it succeeds or ctx ends. It passes each error to failed. If
// failed returns an error, a retry cannot succeed, and Until returns that error. When ctx ends,
// Until returns the last error of try and the error of ctx.
func Until(ctx context.Context, try func() error, failed func(error) error) error {
	var last error
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		switch last = try(); {
		case last == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
		return false, failed(last)
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return errors.Join(last, err)
	}
	return err
}
