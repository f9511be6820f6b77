package torture

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/faultproxy"
	"github.com/kuberelay/kuberelay/internal/verify"
	"github.com/kuberelay/kuberelay/test/harness"
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
	// verified has the oracle read this bus.
	verified(o *verify.Options)

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
}

func startBus(t testing.TB, w *world) bus {
	if w.settings.sink == onKafka {
		return startKafka(t, w)
	}
	return startNATS(t, w)
}
