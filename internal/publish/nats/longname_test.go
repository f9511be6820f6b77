package nats

import (
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/binding"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestALongNameDoesNotCostTheConnection verifies that an object with a very long name is rejected as
// too large. A subject longer than a protocol line would permanently close the connection, and so
// block every other object.
func TestALongNameDoesNotCostTheConnection(t *testing.T) {
	b := connect(t, Options{Connection: Connection{URLs: []string{natstest.Start(t).URL}, Cluster: "test"}})
	waitReady(t, b)
	m := odd(t)
	m.Key.Name = strings.Repeat(":", 1400)
	if _, err := b.prepare(m, binding.NewHeader()); !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, publish.ErrTooLarge)
	}
	m.Key.Name = strings.Repeat(":", 1000)
	if _, err := b.prepare(m, binding.NewHeader()); err != nil {
		t.Errorf("a name that fits: %v", err)
	}
}

// TestAConnectionThatEndsForGoodIsToldOf verifies that Ready reports a permanently closed
// connection. The client does not reconnect after a server error that it does not know.
func TestAConnectionThatEndsForGoodIsToldOf(t *testing.T) {
	bus := connect(t, Options{Connection: Connection{URLs: []string{natstest.Start(t).URL}, Cluster: publishtest.Cluster}})
	waitReady(t, bus)
	if err := bus.conn.NC.Publish(strings.Repeat("x", maxControlLine+100), nil); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "the bus says that it is gone", func() bool { return errors.Is(bus.Ready(), publish.ErrGone) })
	if _, err := publishNow(t, bus, odd(t)); !errors.Is(err, publish.ErrNotSent) {
		t.Errorf("a publish got %v, want %v", err, publish.ErrNotSent)
	}
}
