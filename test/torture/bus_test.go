package torture

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// sink is a kind of bus, named as in KUBERELAY_SINK.
type sink string

const (
	onNATS  sink = "nats"
	onKafka sink = "kafka"
)

// bus is the server or the cluster of servers that the forwarders of a world write to. Each world
// has its own. A proxy connects each forwarder to each server.
type bus interface {
	harness.Recorder

	// links returns the connections of forwarder n to the servers.
	links(n int) faultproxy.Group
	// variables returns the variables of forwarder n for the bus, without their prefix.
	variables(n int) map[string]string
	// verified makes the oracle read the messages of a cluster on this bus.
	verified(o *verify.Options, cluster string)

	kill() error
	start(ctx context.Context) error
	freeze() error
	thaw() error
	// execute performs an action that only this kind of bus supports.
	execute(ctx context.Context, a act) error
	// mend ends the faults that only this kind of bus has.
	mend(ctx context.Context) error
	// lose removes the last messages of some objects, like a bus that loses messages after it
	// acknowledged them. All messages must be recorded, and no process may write meanwhile. It
	// returns the places of the removed messages.
	lose(ctx context.Context, objects int) ([]harness.Place, error)
	// write writes a message of the foreign writer. It returns the places of the message, or none if
	// the topic isn't recorded. It fails with errRefused if the bus did not store the message.
	write(ctx context.Context, m rawMessage) ([]harness.Place, error)
	// purged reports whether the bus has no event left of a message's object.
	purged(ctx context.Context, m harness.Received) (bool, error)
	// dropsRows reports whether tables drop the rows of deleted objects.
	dropsRows() bool
	// compareTables compares the keys of the tables that stock clients build with the wanted
	// subjects or record keys.
	compareTables(ctx context.Context, want map[string]bool) error
}

func startBus(t testing.TB, w *world) bus {
	if w.settings.sink == onKafka {
		return startKafka(t, w)
	}
	return startNATS(t, w)
}
