package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/failpoint"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// serve runs a term. It publishes until the informers are told to stop. Then it waits for them,
// drains the queue within KUBERELAY_DRAIN_TIMEOUT, and closes the bus. If held ends because the
// lease is lost, serve closes the bus at once, and the next leader finds out which messages in
// flight were stored. serve returns an error only if the bus is permanently gone. In that case,
// without leader election, it also tells the informers to stop. serve always returns within the
// shutdown limits, even if a goroutine has not ended.
func (t *term) serve(held context.Context, w *watching) error {
	running, stopRunning := context.WithCancel(w.ctx)
	defer stopRunning()
	defer context.AfterFunc(held, stopRunning)()
	sending, stopSending := context.WithCancel(context.WithoutCancel(w.ctx))
	defer stopSending()
	defer context.AfterFunc(held, stopSending)()
	end, cancel := newShutdown(running, t.Settings.Work.DrainTimeout)
	defer cancel()

	var workers sync.WaitGroup
	workers.Go(func() { t.work(sending) })
	tasks, gone := t.runTasks(running, stopRunning)
	<-running.Done()
	var lost error
	select {
	case lost = <-gone:
	default:
	}
	if held.Err() != nil || lost != nil && t.Settings.Leader.Election {
		stopSending()
		_ = t.bus.Close() // fails the messages in flight; t.close returns the error again
	} else {
		if lost != nil {
			w.stop()
		}
		defer context.AfterFunc(held, func() { _ = t.bus.Close() })() // t.close returns the error again
		t.awaitProducers(end, w, tasks)
		t.drain(sending, end.drain, held)
		stopSending()
		_ = t.bus.Close() // t.close returns the error again
	}
	if !returnsBefore(end.over, workers.Wait) {
		t.Logger.Warn("workers did not stop in time", "in_flight", t.queue.InFlight())
	}
	if !returnsBefore(end.over, tasks.Wait) {
		t.Logger.Warn("background tasks did not stop in time")
	}
	return lost
}

// runTasks runs all goroutines of a term except its workers, until ctx ends. If the bus is
// permanently gone, so that only another process or another term can continue, it calls stop and
// sends the reason to gone.
func (t *term) runTasks(ctx context.Context, stop func()) (tasks *sync.WaitGroup, gone <-chan error) {
	tasks = &sync.WaitGroup{}
	lost := make(chan error, 1)
	tasks.Go(func() { t.reconciler.Run(ctx) })
	tasks.Go(func() {
		if err := t.monitorBus(ctx); err != nil {
			lost <- err
			stop()
		}
	})
	if t.retention != nil {
		tasks.Go(func() { t.retention.Run(ctx) })
	}
	tasks.Go(func() { t.bus.KeepClaim(ctx) })
	if t.Settings.Work.ResolvedInterval > 0 {
		tasks.Go(func() { t.resolver.Run(ctx) })
	}
	if t.Settings.Leader.Election {
		t.compareAll() // when a term begins, the informers call compare only for watched resources
		tasks.Go(func() { t.reloadOnce(ctx) })
	}
	return tasks, lost
}

// awaitProducers waits for the goroutines that enqueue keys. A goroutine that does not stop in time
// does not delay the drain. A draining queue rejects its keys, and the next start finds them.
func (t *term) awaitProducers(end shutdown, w *watching, tasks *sync.WaitGroup) {
	if !returnsBefore(end.informers, tasks.Wait) {
		t.Logger.Warn("background tasks did not stop in time, draining the queue")
	}
	if !closedBefore(end.informers, w.ended) {
		t.Logger.Warn("informers did not stop in time, draining the queue")
	}
}

func (t *term) drain(sending, deadline, held context.Context) {
	t.Logger.Info("draining the queue", "keys", t.queue.Len(), "in_back_off", t.queue.Delayed(), "in_flight", t.queue.InFlight())
	failpoint.Hit("drain")
	draining, cancel := context.WithCancel(sending)
	defer cancel()
	defer context.AfterFunc(deadline, cancel)()
	_ = t.queue.Drain(draining) // not an error, because the next start publishes the remaining changes
	keys, failed, inFlight := t.queue.Len(), t.queue.Delayed(), t.queue.InFlight()
	if keys+failed+inFlight > 0 && held.Err() == nil {
		t.Logger.Warn("some changes are not published; the next start publishes them", "keys", keys, "failed", failed, "in_flight", inFlight)
	}
}

// reloadOnce loads the checkpoint again after the term has lasted for the duration of a lease. A
// message that the previous leader had in flight might have arrived after the first load. If the
// message's object was created and deleted before this term, no conflict would reveal the message.
func (t *term) reloadOnce(ctx context.Context) {
	if t.Settings.Event.Sink != config.SinkNATS {
		return // Kafka rejects messages that the previous writer has in flight
	}
	select {
	case <-ctx.Done():
	case <-time.After(t.Settings.Leader.LeaseDuration):
		t.reconciler.Refresh()
	}
}

// busPoll is the interval at which monitorBus checks the bus. A check sends no request.
const busPoll = 100 * time.Millisecond

// monitorBus pauses the queue while the bus is unavailable. It does not pause the queue for a sink
// whose availability only a publish can show. When the bus is back or reports a possible loss,
// monitorBus retries failed keys at once and requests another checkpoint load, because the bus might
// have lost messages. It blocks until ctx ends, and returns an error if the bus is permanently
// gone.
func (t *term) monitorBus(ctx context.Context) error {
	ticker := time.NewTicker(busPoll)
	defer ticker.Stop()
	away, losses := false, t.checkpoint.LossesAtLoad()
	lastReady := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		wasAway := away
		err := t.bus.Ready()
		if errors.Is(err, publish.ErrGone) {
			return err
		}
		away = err != nil
		switch {
		case away && !wasAway: // the bus might have become unavailable right after the last successful check
			t.unavailableSince.Store(lastReady.UnixNano())
		case !away && wasAway: // count before a worker publishes the waiting changes
			o := &outage{began: time.Unix(0, t.unavailableSince.Swap(0)), ended: time.Now()}
			o.waiting = t.ledger.Between(o.began, o.ended)
			t.outage.Store(o)
		}
		if !away {
			lastReady = time.Now()
		}
		if away && t.bus.Readable {
			// A publish would fail at once. But keys of deleted objects are handed out: if the bus
			// does not have the object, no publish is needed, and the object's last state is freed.
			t.queue.Pause(t.ledger.HasTombstone)
		} else {
			t.queue.Resume()
		}
		if now := t.bus.PossibleLosses(); !away && (wasAway || now != losses) {
			losses = now
			t.queue.RetryNow()
			t.reconciler.Refresh()
		}
	}
}
