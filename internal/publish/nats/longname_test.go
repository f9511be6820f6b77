package nats

import (
	"errors"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/publishtest"
)

// An object whose subject is longer than a line of the protocol may be would cost
// the connection, and with it every other object, for good.
func TestALongNameDoesNotCostTheConnection(t *testing.T) {
	b := &Bus{opts: Options{SubjectPrefix: "kuberelay", Cluster: "test"}.withDefaults()}
	b.state.set(0, nil)
	m := odd(t)
	m.Key.Name = strings.Repeat(":", 1400)
	if _, err := b.prepare(m, headers.Get().(*header)); !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, publish.ErrTooLarge)
	}
	m.Key.Name = strings.Repeat(":", 1000)
	if _, err := b.prepare(m, headers.Get().(*header)); err != nil {
		t.Errorf("a name that fits: %v", err)
	}
}

// What ends the connection all the same must show: the client does not make a new
// one after an error of the server that it does not know.
func TestAConnectionThatEndsForGoodIsToldOf(t *testing.T) {
	bus := connect(t, Options{URLs: []string{natstest.Start(t).URL}, Cluster: publishtest.Cluster})
	waitReady(t, bus)
	if err := bus.nc.Publish(strings.Repeat("x", maxControlLine+100), nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the bus says that it is gone", func() bool { return errors.Is(bus.Ready(), publish.ErrGone) })
	if _, err := publishNow(t, bus, odd(t)); !errors.Is(err, publish.ErrNotSent) {
		t.Errorf("a publish got %v, want %v", err, publish.ErrNotSent)
	}
}
