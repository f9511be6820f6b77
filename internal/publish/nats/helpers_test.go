package nats

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// limit bounds every wait. Only a failing test waits that long.
const limit = 3 * time.Minute

// locked is a writer that several goroutines of a logger can use.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func waitReady(t testing.TB, bus *Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := bus.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// waitReconnected waits until a connection after the first one is ready.
func waitReconnected(t testing.TB, bus *Bus) {
	t.Helper()
	poll.Holds(t, "reconnected", func() bool {
		lost, _, err := bus.conn.State() // the bus may not have noticed yet that the first connection is lost
		return lost > 0 && err == nil && bus.conn.NC.Stats().Reconnects > 0
	})
}

// publishFrozen publishes a message that passes the proxy only after the result, and returns the
// error. It tries again if the bus was not ready, because a check can time out on a busy machine.
func publishFrozen(t testing.TB, bus *Bus, proxy *faultproxy.Proxy, m *event.Message) (err error) {
	t.Helper()
	poll.Holds(t, "published", func() bool {
		waitReady(t, bus)
		proxy.Freeze()
		defer proxy.Pass()
		_, err = publishNow(t, bus, m)
		return publish.ResultOf(err) != publish.ResultNotReady
	})
	return err
}

// firstOf returns the configured first sequence of a stream that the bus has created.
func firstOf(t testing.TB, bus *Bus) uint64 {
	t.Helper()
	stream, err := bus.conn.JS.Stream(t.Context(), bus.opts.Stream)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Config.FirstSeq
}

// publishNow publishes and waits for the result.
func publishNow(t testing.TB, bus *Bus, m *event.Message) (uint64, error) {
	t.Helper()
	type outcome struct {
		position uint64
		err      error
	}
	done := make(chan outcome, 2)
	bus.Publish(t.Context(), m, func(position uint64, err error) { done <- outcome{position, err} })
	select {
	case o := <-done:
		return o.position, o.err
	case <-time.After(limit):
		t.Fatalf("no completion within %s", limit)
		return 0, nil
	}
}

func publishOK(t testing.TB, bus *Bus, m *event.Message) uint64 {
	t.Helper()
	position, err := publishNow(t, bus, m)
	if err != nil {
		t.Fatal(err)
	}
	return position
}

// publishStored publishes until the message is stored. A publish can fail, for example because the
// stream has no leader yet.
func publishStored(t testing.TB, bus *Bus, m *event.Message) (position uint64) {
	t.Helper()
	poll.Holds(t, "stored", func() bool {
		var err error
		position, err = publishNow(t, bus, m)
		if conflict := new(publish.ConflictError); errors.As(err, &conflict) {
			t.Fatal(err)
		}
		return err == nil
	})
	return position
}

// odd returns an event of an object whose name RBAC allows. The name contains every kind of
// character that must be encoded.
func odd(t testing.TB) *event.Message {
	return publishtest.Object{Name: `système:"admin" 100%`, UID: "u-1", Version: 7, Data: "x"}.Message(t, 41)
}

// read connects a reader to the stream.
func read(t testing.TB, url string) *reader.Bus {
	t.Helper()
	bus, err := reader.Connect(t.Context(), reader.Options{URLs: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	return bus
}
