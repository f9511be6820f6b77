package relay

import (
	"context"
	"log/slog"
	"time"
)

// closeTimeout is the time that a shutdown may take beyond KUBERELAY_DRAIN_TIMEOUT, to
// close the bus. It includes no wait for the cluster or for acknowledgements.
const closeTimeout = 8 * time.Second

// shutdown holds the deadlines of the end of a term. All count from one moment: SIGTERM, or
// whatever else ends the term.
type shutdown struct {
	informers context.Context // half of KUBERELAY_DRAIN_TIMEOUT; the rest is for publishing
	drain     context.Context // KUBERELAY_DRAIN_TIMEOUT: the end of publishing
	over      context.Context // the end of the shutdown, whatever has not ended
}

// newShutdown makes the deadlines of a shutdown that begins when ctx ends.
func newShutdown(ctx context.Context, drain time.Duration) (shutdown, context.CancelFunc) {
	informers, cancelInformers := endsAfter(ctx, drain/2)
	draining, cancelDrain := endsAfter(ctx, drain)
	over, cancelOver := endsAfter(ctx, drain+closeTimeout)
	return shutdown{informers, draining, over}, func() { cancelInformers(); cancelDrain(); cancelOver() }
}

// endsAfter returns a context that ends when d has passed since the end of ctx.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(late, func() { timer.Stop() })
	})
	return late, func() { stop(); cancel() }
}

// waits calls a function that blocks, and reports whether it returns before ctx ends.
func waits(ctx context.Context, f func()) bool {
	returned := make(chan struct{})
	go func() { defer close(returned); f() }()
	return isClosed(ctx, returned)
}

// isClosed waits until c is closed or ctx ends, and reports whether c is closed.
func isClosed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		select { // both
		case <-c:
			return true
		default:
			return false
		}
	}
}

// watching is the run of the informers.
type watching struct {
	ctx   context.Context // ends when the informers are told to stop
	stop  context.CancelFunc
	over  context.Context // ends when nothing waits for the informers any more
	ended chan struct{}   // closed when they have stopped
	err   error           // why they stopped by themselves; valid after ended
}

// watch runs the informers until ctx ends.
func (r *Relay) watch(ctx context.Context) *watching {
	w := &watching{ended: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(ctx)
	w.over, _ = endsAfter(w.ctx, r.Settings.Work.DrainTimeout) // it ends, because w.ctx does
	go func() {
		defer close(w.ended)
		defer w.stop()
		w.err = r.informers.Run(w.ctx)
	}()
	return w
}

// end stops the informers and returns why they stopped by themselves, if they did. It waits
// at most as long as the drain.
func (w *watching) end(log *slog.Logger) error {
	w.stop()
	if !isClosed(w.over, w.ended) {
		log.Warn("informers did not stop in time, shutting down without them")
		return nil
	}
	return w.err
}
