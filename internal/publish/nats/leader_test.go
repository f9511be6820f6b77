package nats

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestElection verifies that the election of a new stream leader counts as a possible loss, even if
// the bus stayed ready. Then the caller reads the checkpoint again, because the new leader can lack
// messages.
func TestElection(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{Connection: Connection{URLs: c.URLs(), Cluster: publishtest.Cluster}, Replicas: 3})
	before := bus.PossibleLosses()
	poll.Holds(t, "stepped down", func() bool { return natstest.StepDown(t.Context(), bus.conn.NC, "KUBERELAY") == nil })
	poll.Holds(t, "the election is counted", func() bool { return bus.PossibleLosses() > before && bus.Ready() == nil })
}

// TestAServerLosesAStreamWithOneReplica shows that the cluster keeps the identity of a stream even
// if the files of its only replica are lost. So the forwarder learns about the loss only when it
// reads the checkpoint again.
func TestAServerLosesAStreamWithOneReplica(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{Connection: Connection{URLs: c.URLs(), Cluster: publishtest.Cluster}, Replicas: 1})
	put := func(name string) uint64 {
		t.Helper()
		return publishStored(t, bus, publishtest.Object{Name: name, Version: 1}.Message(t, 0))
	}
	put("first")
	before, was := put("second"), bus.Stream()
	if got := load(t, bus); len(got) != 2 {
		t.Fatalf("loaded %v", got)
	}
	n, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	c.Servers[n].Kill()
	c.Servers[n].Forget()
	c.Servers[n].Start()
	poll.Holds(t, "ready", func() bool { return bus.conn.Check(t.Context()) == nil && bus.Ready() == nil })
	if got := load(t, bus); len(got) != 0 || bus.Stream() != was {
		t.Errorf("loaded %v from stream %q, want nothing from %q", got, bus.Stream(), was)
	}
	if after := put("first"); after >= before {
		t.Errorf("stored at %d, after %d was lost", after, before)
	}
}
