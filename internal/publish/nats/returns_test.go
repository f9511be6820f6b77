package nats

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestLoadAfterAMessageReturned: a limit removes a message, somebody deletes the one after it, and a
// server is killed. nats-server 2.15 then brings the first one back on that server only. A load must
// not read it there.
func TestLoadAfterAMessageReturned(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{URLs: c.URLs(), Cluster: publishtest.Cluster, Replicas: 3, History: 1})
	put := func(name string, version int, expected uint64) (position uint64) {
		t.Helper()
		waitFor(t, "stored", func() (stored bool) {
			var err error
			position, err = publishNow(t, bus, publishtest.Object{Name: name, Version: version}.Message(t, expected))
			return err == nil
		})
		return position
	}
	attempt, killed := 0, 0
	waitFor(t, "a message that returned", func() bool {
		attempt++
		name := fmt.Sprint("object-", attempt)
		last := put(name, 2, put(name, 1, 0))
		s, err := bus.conn.JS.Stream(t.Context(), "KUBERELAY")
		if err != nil || s.CachedInfo().Cluster == nil || s.DeleteMsg(t.Context(), last) != nil {
			return false
		}
		killed = slices.Index([]string{"server-1", "server-2", "server-0"}, s.CachedInfo().Cluster.Leader) // one that follows
		if killed < 0 {
			return false
		}
		c.Servers[killed].Kill()
		c.Servers[killed].Start()
		waitFor(t, "it has joined", func() bool { return c.Servers[killed].Joined() == nil })
		for range 50 { // the server places a consumer on any replica
			on, err := bus.conn.JS.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
				DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", MemoryStorage: true, Replicas: 1,
			})
			if err == nil && on.CachedInfo().NumPending > 0 {
				return true
			}
		}
		return false
	})
	for range replicaReads {
		got := load(t, bus)
		if leader, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY"); len(got) > 0 && err == nil && leader != killed {
			t.Fatalf("loaded %v", got)
		}
	}
}
