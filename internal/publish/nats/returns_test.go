package nats

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestAMessageReturnsOnOneServer_Slow shows a bug of nats-server 2.15. A limit removes a message between
// others, somebody deletes the message after it, and a server is killed. Then the first message
// returns on that server only. A load must not return it before that server leads, and the election
// of that server counts as a possible loss.
func TestAMessageReturnsOnOneServer_Slow(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{Connection: Connection{URLs: c.URLs(), Cluster: publishtest.Cluster}, Replicas: 3, History: 1})
	put := func(name string, version int, expected uint64) uint64 {
		t.Helper()
		return publishStored(t, bus, publishtest.Object{Name: name, Version: version}.Message(t, expected))
	}
	messages := func(n int) uint64 { return c.Servers[n].Messages("KUBERELAY") }
	stored := func(end uint64) bool {
		return c.Servers[0].Stored("KUBERELAY") >= end && c.Servers[1].Stored("KUBERELAY") >= end && c.Servers[2].Stored("KUBERELAY") >= end
	}
	for i := range 30 {
		put(fmt.Sprint("before-", i), 1, 0)
	}
	var name string
	var killed, attempt int
	poll.Holds(t, "a message that returned", func() bool { // retried if the server has written its index since
		attempt++
		name = fmt.Sprint("returns-", attempt)
		last := put(name, 2, put(name, 1, 0))
		poll.Holds(t, "deleted", func() bool {
			s, err := bus.conn.JS.Stream(t.Context(), "KUBERELAY")
			return err == nil && s.DeleteMsg(t.Context(), last) == nil
		})
		var end uint64
		for i := range 30 {
			end = put(fmt.Sprintf("after-%d-%d", attempt, i), 1, 0)
		}
		poll.Holds(t, "the same on every server", func() bool {
			return stored(end) && messages(0) == messages(1) && messages(1) == messages(2)
		})
		leader, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY")
		if err != nil {
			return false
		}
		killed = (leader + 1) % len(c.Servers)
		c.Servers[killed].Kill()
		c.Servers[killed].Start()
		poll.Holds(t, "recovered", func() bool { return stored(end) })
		return messages(killed) == messages(leader)+1
	})
	poll.Holds(t, "a consumer of that message", func() bool {
		on, err := bus.conn.JS.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", MemoryStorage: true, Replicas: 1,
		})
		return err == nil && on.CachedInfo().NumPending == messages(killed)
	})

	returned := publishtest.Object{Name: name}.Key()
	leads := func(n int) bool {
		leader, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY")
		return err == nil && leader == n
	}
	for range replicaReads {
		if got := load(t, bus)[returned]; got.Live() && !leads(killed) {
			t.Fatalf("loaded %v from a server that does not lead", got)
		}
	}
	before := bus.PossibleLosses()
	poll.Holds(t, "that server leads", func() bool {
		leader, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY")
		if err == nil && leader != killed {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = bus.conn.NC.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.KUBERELAY",
				fmt.Appendf(nil, `{"placement": {"preferred": "server-%d"}}`, killed)) // the server may not be current yet
		}
		return err == nil && leader == killed
	})
	poll.Holds(t, "the election is counted", func() bool { return bus.PossibleLosses() > before && bus.Ready() == nil })
	if got := load(t, bus)[returned]; !got.Live() && leads(killed) {
		t.Errorf("loaded %v, want the message that returned", got)
	}
}
