package nats

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestAnotherLeader: the caller reads the checkpoint again after another server became the leader of
// the stream, even if the bus was ready all the time. The new leader can lack messages.
func TestAnotherLeader(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{URLs: c.URLs(), Cluster: publishtest.Cluster, Replicas: 3})
	created := bus.Created()
	waitFor(t, "stepped down", func() bool { return natstest.StepDown(t.Context(), bus.conn.NC, "KUBERELAY") == nil })
	waitFor(t, "told of another leader", func() bool { return bus.Created() > created && bus.Ready() == nil })
}
