package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/relay/bus"
	"github.com/kuberelay/kuberelay/internal/workqueue"
)

// countedLoads is an empty bus that counts its loads.
type countedLoads struct {
	silent
	n atomic.Int64
}

func (c *countedLoads) Load(context.Context, func(event.Key, event.Acked) error) error {
	c.n.Add(1)
	return nil
}

// TestLossAfterTheFirstLoad verifies that a possible loss between the first load and the start of
// monitorBus causes another load. Otherwise, no consistency point would be published until the next
// refresh.
func TestLossAfterTheFirstLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losses atomic.Uint64
		source := &countedLoads{silent: silent{losses: losses.Load}}
		tm := newTestTerm(&bus.Bus{Bus: source, Readable: true}, 0, slog.New(slog.DiscardHandler))
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
		time.Sleep(time.Minute) // on the synctest clock
		if _, known := tm.checkpoint.Losses(); !known || source.n.Load() != 2 {
			t.Errorf("after a minute, known is %t after %d loads, want true after 2", known, source.n.Load())
		}
		cancel()
		running.Wait()
	})
}

// TestLoadAfterAHandover verifies that a term loads the checkpoint again when no message of the previous
// leader can arrive on NATS anymore. No conflict would reveal such a message if its object no longer exists.
func TestLoadAfterAHandover(t *testing.T) {
	for name, c := range map[string]struct {
		elected bool
		sink    string
		loads   int64
	}{
		"NATS":                    {true, config.SinkNATS, 1},
		"Kafka":                   {true, config.SinkKafka, 0}, // it rejects messages of the previous leader
		"without leader election": {false, config.SinkNATS, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &countedLoads{}
				tm := newTestTerm(&bus.Bus{Bus: source, Readable: true}, 0, slog.New(slog.DiscardHandler))
				tm.reconciler = checkpoint.NewReconciler(tm.checkpoint, source, reconciled{tm}, time.Hour, tm.Logger)
				tm.Settings.Leader = config.Leader{Election: c.elected, LeaseDuration: 15 * time.Second}
				tm.Settings.Event.Sink = c.sink
				ctx, cancel := context.WithCancel(t.Context())
				tasks, _ := tm.runTasks(ctx, cancel)
				tasks.Go(func() { tm.queue.Run(ctx, func(context.Context, event.Key, func(workqueue.Result)) {}) })
				time.Sleep(14 * time.Second) // on the synctest clock
				if n := source.n.Load(); n != 0 {
					t.Errorf("%d loads before the lease of the previous leader has expired, want 0", n)
				}
				time.Sleep(time.Minute)
				if n := source.n.Load(); n != c.loads {
					t.Errorf("%d loads after a minute, want %d", n, c.loads)
				}
				cancel()
				tasks.Wait()
			})
		})
	}
}

// TestTheBusIsBack verifies that keys in backoff are retried when the bus is back.
func TestTheBusIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flickering{}
		tm := newTestTerm(&bus.Bus{Bus: f, Readable: true}, 0, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = tm.monitorBus(ctx) })
		var handled atomic.Int64
		running.Go(func() {
			tm.queue.Run(ctx, func(_ context.Context, _ event.Key, done func(workqueue.Result)) {
				handled.Add(1)
				done(workqueue.Result{Err: errors.New("away")}) // the backoff is an hour
			})
		})
		tm.queue.Add(configMapKey("a"))
		time.Sleep(time.Minute)
		f.away.Store(true)
		time.Sleep(time.Minute)
		f.away.Store(false)
		time.Sleep(time.Minute)
		if n := handled.Load(); n != 2 {
			t.Errorf("handled %d times in 3 minutes, want 2", n)
		}
		cancel()
		running.Wait()
	})
}

// flickering is a bus that a test can take away and bring back.
type flickering struct {
	silent
	away atomic.Bool
}

func (f *flickering) Ready() error {
	if f.away.Load() {
		return errors.New("away")
	}
	return nil
}

// TestOutageCountsWhatWaits verifies that the changes that wait for the bus are counted before a
// worker can publish them. They include the changes that were reported before monitorBus noticed
// the outage.
func TestOutageCountsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flickering{}
		f.losses = func() uint64 { time.Sleep(time.Second); return 0 } // on the synctest clock, so that workers can run
		tm := newTestTerm(&bus.Bus{Bus: f, Readable: true}, 0, slog.New(slog.DiscardHandler))
		keys, acked := tm.ledger, tm.acked
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = tm.monitorBus(ctx) })
		running.Go(func() {
			tm.queue.Run(ctx, func(_ context.Context, k event.Key, done func(workqueue.Result)) {
				acked.Acknowledge(k, event.Acked{UID: k.Name, ResourceVersion: "7", Position: 1}, shows{}.Lookup(k).Live, ledger.Interest{Selected: true, Published: true})
				done(workqueue.Result{})
			})
		})
		change := func(name string) {
			k := configMapKey(name)
			keys.Observe(k, nil, shows{}.Lookup(k).Live, event.CauseWatch, false, time.Now())
		}
		time.Sleep(time.Minute + 950*time.Millisecond) // the ledger counts in whole seconds, and monitorBus notices in the next
		f.away.Store(true)
		lost := time.Now()
		change("a")
		time.Sleep(time.Minute)
		const objects = 3
		change("b")
		change("c")
		for _, name := range []string{"a", "b", "c"} {
			tm.queue.Add(configMapKey(name))
		}
		time.Sleep(time.Minute)
		f.away.Store(false)
		time.Sleep(time.Minute)
		if o := tm.outage.Load(); o == nil || o.waiting != objects || lost.Sub(o.began) > 2*time.Second {
			t.Errorf("the outage is %+v, want that %d objects waited since about %v", o, objects, lost)
		}
		cancel()
		running.Wait()
	})
}
