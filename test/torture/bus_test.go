package torture

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// sink is a kind of bus, as KUBERELAY_SINK names it.
type sink string

const (
	onNATS  sink = "nats"
	onKafka sink = "kafka"
)

// bus is the server that the forwarders of a world write to, which the world has for
// itself. Between it and each forwarder is a proxy.
type bus interface {
	harness.Recorder

	proxy(n int) *faultproxy.Proxy
	// variables say to forwarder n where the bus is and how to use it, without their
	// prefix.
	variables(n int) map[string]string
	// verified has the oracle read what this bus has of a cluster.
	verified(o *verify.Options, cluster string)

	kill() error
	start(ctx context.Context) error
	freeze() error
	thaw() error
	// execute does a deed that only this kind of bus knows.
	execute(ctx context.Context, a act) error
	// mend ends what only this kind of bus can have.
	mend(ctx context.Context) error
	// lose takes the last messages of some objects away, as a bus does that loses what
	// it has acknowledged. All there is has been recorded, and nobody writes. It
	// returns where these messages were.
	lose(ctx context.Context, objects int) ([]harness.Place, error)
	// write writes a message of the foreign writer and returns where it is, nothing if
	// nobody records that topic. It fails with errRefused if the bus did not store it.
	write(ctx context.Context, m rawMessage) ([]harness.Place, error)
	// purged reports whether the bus holds no event of the object of a message any more.
	purged(ctx context.Context, m harness.Received) (bool, error)
	// dropsRows reports whether a table drops the row of an object that is gone.
	dropsRows() bool
	// compareTables compares the keys of the tables that stock clients build with those that
	// are wanted: subjects, or record keys.
	compareTables(ctx context.Context, want map[string]bool) error
}

func startBus(t testing.TB, w *world) bus {
	if w.settings.sink == onKafka {
		return startKafka(t, w)
	}
	return startNATS(t, w)
}
