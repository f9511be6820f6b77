package relay

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// countedLoads is an empty bus that counts its loads.
type countedLoads struct{ n int }

func (c *countedLoads) Load(context.Context, func(event.Key, event.Acked) error) error {
	c.n++
	return nil
}

// TestLossAfterTheFirstLoad: a possible loss between the first load and the start of monitorBus
// causes a load. Without it, there is no consistency point until the next refresh.
func TestLossAfterTheFirstLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losses atomic.Uint64
		source := &countedLoads{}
		tm := newTestTerm(&bus{Publisher: &silent{}, history: noHistory{}, source: source, possibleLosses: losses.Load, probes: true}, 0, slog.New(slog.DiscardHandler))
		tm.checkpoint.PossibleLosses = losses.Load
		tm.reconciler = checkpoint.NewReconciler(tm.checkpoint, source, reconciled{tm}, time.Hour, tm.Logger)
		losses.Store(1)
		if err := tm.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		losses.Store(2)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { tm.queue.Run(ctx, func(context.Context, event.Key, func(workqueue.Result)) {}) })
		running.Go(func() { tm.reconciler.Run(ctx) })
		running.Go(func() { _ = tm.monitorBus(ctx) })
		time.Sleep(time.Minute) // of the bubble's clock
		if _, known := tm.checkpoint.Losses(); !known || source.n != 2 {
			t.Errorf("after a minute, known is %t after %d loads, want true after 2", known, source.n)
		}
		cancel()
		running.Wait()
	})
}
