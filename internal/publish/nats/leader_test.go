package nats

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestElection: the caller reads the checkpoint again after the stream elected a leader, even if the
// bus was ready all the time. The leader can lack messages.
func TestElection(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{URLs: c.URLs(), Cluster: publishtest.Cluster, Replicas: 3})
	before := bus.PossibleLosses()
	waitFor(t, "stepped down", func() bool { return natstest.StepDown(t.Context(), bus.conn.NC, "KUBERELAY") == nil })
	waitFor(t, "told of the election", func() bool { return bus.PossibleLosses() > before && bus.Ready() == nil })
}
