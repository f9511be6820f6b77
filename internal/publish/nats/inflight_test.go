package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestCompletedOnce_Slow verifies that each message is completed exactly once when timeouts and
// acknowledgements race, and that a late acknowledgement is harmless.
func TestCompletedOnce_Slow(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}})
	const objects = 1_000
	var calls [objects]atomic.Int32
	var failed atomic.Int32
	sweeping, stop := context.WithCancel(t.Context())
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for sweeping.Err() == nil {
			bus.sweep(time.Now().Add(time.Hour)) // as if every message had waited for an hour
		}
	})
	for i := range objects {
		m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		bus.Publish(t.Context(), m, func(_ uint64, err error) {
			calls[i].Add(1)
			if err != nil {
				failed.Add(1)
				if publish.ResultOf(err) != publish.ResultTimeout {
					t.Errorf("%v", err)
				}
			}
		})
	}
	if err := bus.flights.pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	sweeper.Wait()
	if failed.Load() == 0 {
		t.Error("nothing timed out: there was no race")
	}
	for i := range objects {
		publishOK(t, bus, publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0))
		if n := calls[i].Load(); n != 1 {
			t.Errorf("message %d was completed %d times", i, n)
		}
	}
	if loaded := load(t, bus); len(loaded) != objects {
		t.Errorf("the bus holds %d objects, want %d", len(loaded), objects)
	}
	if got := len(readMessages(t, s.URL, "kuberelay.>")); got != objects {
		t.Errorf("the bus holds %d events, want %d", got, objects)
	}
	checkFree(t, bus)
}

// checkFree verifies that no message holds a slot.
func checkFree(t *testing.T, b *Bus) {
	t.Helper()
	if free, left := len(b.flights.free), b.flights.takeIf(func(*flight) bool { return true }); free != cap(b.flights.free) || len(left) > 0 {
		t.Errorf("%d of %d slots are free, %d flights are left", free, cap(b.flights.free), len(left))
	}
}

// TestCloseWhilePublishing verifies that every publish completes if Close is called meanwhile.
func TestCloseWhilePublishing(t *testing.T) {
	s := natstest.Start(t)
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster}, MaxInFlight: 16})
	const publishers, each = 8, 500
	var calls atomic.Int32
	var wg sync.WaitGroup
	underway := make(chan struct{}, publishers*each)
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				m := publishtest.Object{Name: fmt.Sprintf("web-%d-%d", p, i), Version: 1}.Message(t, 0)
				bus.Publish(t.Context(), m, func(uint64, error) { calls.Add(1) })
				underway <- struct{}{}
			}
		})
	}
	for range 100 {
		<-underway
	}
	if err := bus.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	wg.Wait()
	if got := calls.Load(); got != publishers*each {
		t.Errorf("%d completions, want %d", got, publishers*each)
	}
	checkFree(t, bus)
}

// TestPublishBlocks verifies that Publish blocks at the in-flight limit until its context ends or
// the bus is closed.
func TestPublishBlocks(t *testing.T) {
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addr())
	bus := connect(t, Options{Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster}, MaxInFlight: 2})
	proxy.Freeze()
	results := make(chan error, 10)
	message := func(i int) func(context.Context) {
		m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		return func(ctx context.Context) { bus.Publish(ctx, m, func(_ uint64, err error) { results <- err }) }
	}
	for i := range 2 {
		message(i)(t.Context())
	}
	if len(results) != 0 {
		t.Fatalf("completed though frozen: %v", <-results)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	message(2)(ctx)
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	var blocked sync.WaitGroup
	started := make(chan struct{})
	blocked.Go(func() {
		publish := message(3)
		close(started)
		publish(t.Context())
	})
	<-started
	bus.Close()
	blocked.Wait()
	for range 3 {
		if err := <-results; publish.ResultOf(err) != publish.ResultClosed && publish.ResultOf(err) != publish.ResultNotReady {
			t.Errorf("error is %v, want that it is closed", err)
		}
	}
}

// TestTimeout verifies that a message without an acknowledgement times out, even if the connection
// seems healthy.
func TestTimeout(t *testing.T) {
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addr())
	bus := connect(t, Options{Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster, AckTimeout: 200 * time.Millisecond}})
	m := publishtest.Object{Name: "web", Version: 1}.Message(t, 0)
	if err := publishFrozen(t, bus, proxy, m); publish.ResultOf(err) != publish.ResultTimeout {
		t.Errorf("error is %v, want that it timed out", err)
	}
	var first uint64
	poll.Holds(t, "published", func() bool {
		var err error
		first, err = publishNow(t, bus, m)
		return err == nil
	})
	if events := readEvents(t, s.URL, m.Key); len(events) != 1 || events[0].Position != first {
		t.Errorf("the bus holds %v, want one event at %d", events, first)
	}
}

// TestDisconnected verifies that messages in flight fail at once when the connection breaks, because
// their responses are lost.
func TestDisconnected(t *testing.T) {
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addr())
	bus := connect(t, Options{Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster, AckTimeout: 10 * limit}})
	proxy.Freeze()
	result := make(chan error, 1)
	bus.Publish(t.Context(), publishtest.Object{Name: "web", Version: 1}.Message(t, 0), func(_ uint64, err error) { result <- err })
	proxy.Break()
	proxy.Pass()
	select {
	case err := <-result:
		if publish.ResultOf(err) != stream.ResultDisconnected {
			t.Errorf("error is %v, want that the connection broke", err)
		}
	case <-time.After(limit):
		t.Errorf("no completion within %s", limit)
	}
}

// TestPending verifies that a wait for the messages in flight ends when its context ends.
func TestPending(t *testing.T) {
	s := natstest.Start(t)
	proxy := faultproxy.Start(t, s.Addr())
	bus := connect(t, Options{Connection: Connection{URLs: []string{proxy.Addr()}, Cluster: publishtest.Cluster}})
	if err := bus.flights.pending.Wait(t.Context()); err != nil {
		t.Errorf("with nothing in flight: %v", err)
	}
	proxy.Freeze()
	bus.Publish(t.Context(), publishtest.Object{Name: "web", Version: 1}.Message(t, 0), func(uint64, error) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bus.flights.pending.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	proxy.Pass()
	if err := bus.flights.pending.Wait(t.Context()); err != nil {
		t.Errorf("after all were acknowledged: %v", err)
	}
}

// TestFlights verifies that a flight is taken out of its slot once, only by its own token, and that no
// flight stays after close.
func TestFlights(t *testing.T) {
	s := newFlights(1)
	first := &flight{slot: <-s.free}
	if !s.put(first) {
		t.Fatal("rejected before close")
	}
	late := first.token
	if s.takeIf(func(*flight) bool { return false }) != nil || s.take(late) != first || s.take(late) != nil {
		t.Error("the flight is not taken out exactly once")
	}
	second := &flight{slot: first.slot}
	if s.put(second); s.take(late) != nil {
		t.Error("a late response took the next flight of the slot")
	}
	if got := s.close(); len(got) != 1 || got[0] != second || s.take(second.token) != nil {
		t.Errorf("close returned %v", got)
	}
	if third := (&flight{slot: first.slot}); s.put(third) || s.take(third.token) != nil {
		t.Error("a flight is left after close")
	}
}

// TestSweepDuringRejections verifies, with the race detector, that a sweep can read the messages in flight
// while their rejections are handled.
func TestSweepDuringRejections(t *testing.T) {
	bus := connect(t, Options{Connection: Connection{URLs: []string{natstest.Start(t).URL}, Cluster: publishtest.Cluster}})
	publishOK(t, bus, publishtest.Object{Name: "web", Version: 1}.Message(t, 0))
	sweeping, stop := context.WithCancel(t.Context())
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for sweeping.Err() == nil {
			bus.sweep(time.Time{}) // no message is late
		}
	})
	for range 100 {
		_, err := publishNow(t, bus, publishtest.Object{Name: "web", Version: 2}.Message(t, 99))
		if conflict := new(publish.ConflictError); !errors.As(err, &conflict) {
			t.Errorf("got %v, want a conflict", err)
		}
	}
	stop()
	sweeper.Wait()
	checkFree(t, bus)
}
