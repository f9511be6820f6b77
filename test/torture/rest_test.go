package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
)

// How long rest watches the forwarders: in a run of chosen seeds, and in a run of many tests. A
// forwarder that works in a loop exceeds the limits of [harness.Forwarder.Rest] in either window.
const (
	restWindow  = 10 * time.Second
	quickWindow = 3 * time.Second
)

// restOf watches a forwarder for one window, and for a second window if the forwarder works in the
// first one. A fault can leave work for the first window, but a loop goes on.
func restOf(ctx context.Context, n *node, window time.Duration) error {
	var work *harness.WorkError
	err := n.Rest(ctx, window)
	if errors.As(err, &work) {
		err = n.Rest(ctx, window)
	}
	return err
}

// rest checks that the forwarders do almost nothing when bus and cluster agree and nothing
// changes. It fails with a [wrongError] if they do more.
func (w *world) rest(ctx context.Context, window time.Duration) error {
	found := make([]error, len(w.nodes))
	var running sync.WaitGroup
	for n, nd := range w.nodes {
		if nd.Running() {
			running.Go(func() { found[n] = restOf(ctx, nd, window) })
		}
	}
	running.Wait()
	var wrong wrongError
	for n, err := range found {
		var work *harness.WorkError
		switch {
		case errors.As(err, &work):
			wrong.problems = append(wrong.problems, fmt.Sprintf("work: forwarder %d: %v", n, work))
		case err != nil:
			return fmt.Errorf("forwarder %d: %w", n, err)
		}
	}
	if len(wrong.problems) > 0 {
		return &wrong
	}
	return nil
}
