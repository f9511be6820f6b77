package nats

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestLoadFromAReplicaThatIsAhead_Slow verifies that a load does not read from a replica that is ahead of
// the leader. In this test, two of three servers return with earlier copies of their files. The
// third server keeps the messages that they lost, and lacks the messages that they store afterwards.
// After minutes it stores later messages too, but still has other messages at the sequences in
// between. An earlier version read from the third server. It returned events that the leader lacked,
// and missed events that the leader had.
func TestLoadFromAReplicaThatIsAhead_Slow(t *testing.T) {
	c := natstest.StartProcesses(t, 3)
	bus := connect(t, Options{Connection: Connection{URLs: c.URLs(), Cluster: publishtest.Cluster}, Replicas: 3})
	want := map[event.Key]event.Acked{}
	put := func(name string, version int) {
		t.Helper()
		m := publishtest.Object{Name: name, Version: version}.Message(t, want[publishtest.Object{Name: name}.Key()].Position)
		m.Acked.Position = publishStored(t, bus, m)
		want[m.Key] = m.Acked
	}
	same := func() bool {
		end := c.Servers[0].Stored("KUBERELAY")
		return end > 0 && end == c.Servers[1].Stored("KUBERELAY") && end == c.Servers[2].Stored("KUBERELAY")
	}
	leads := func() bool {
		_, err := c.Leader(t.Context(), bus.conn.JS, "KUBERELAY")
		return err == nil && bus.conn.Check(t.Context()) == nil
	}
	put("updated", 1)
	put("same", 1)
	poll.Holds(t, "on every server", same)
	copies := t.TempDir()
	older, ahead := c.Servers[:2], c.Servers[2]
	for _, s := range c.Servers {
		s.Kill()
	}
	for i, s := range older {
		if err := os.CopyFS(filepath.Join(copies, fmt.Sprint(i)), os.DirFS(s.StoreDir())); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers {
		s.Start()
	}
	poll.Holds(t, "led", leads)
	kept := maps.Clone(want)
	put("updated", 2)
	put("lost", 1)
	put("lost too", 1)
	poll.Holds(t, "on every server", same)

	for _, s := range c.Servers {
		s.Kill()
	}
	for i, s := range older {
		s.Forget()
		if err := os.CopyFS(s.StoreDir(), os.DirFS(filepath.Join(copies, fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
	for range 5 { // more terms than the third server has seen, so that it doesn't become the leader
		poll.Holds(t, "led", leads)
		poll.Holds(t, "stepped down", func() bool { return natstest.StepDown(t.Context(), bus.conn.NC, "KUBERELAY") == nil })
	}
	ahead.Start()
	poll.Holds(t, "led", leads)
	want = kept
	check := func() {
		t.Helper()
		poll.Holds(t, "a consumer of other messages on the third server", func() bool {
			on, err := bus.conn.JS.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{
				DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "kuberelay.>", MemoryStorage: true, Replicas: 1,
			})
			return err == nil && on.CachedInfo().Cluster.Leader == "server-2" && on.CachedInfo().NumPending != uint64(len(want))
		})
		for range replicaReads {
			if diff := cmp.Diff(want, load(t, bus), whenever); diff != "" {
				t.Fatalf("loaded (-want +got):\n%s", diff)
			}
		}
	}
	check()
	for i := range 5 {
		put(fmt.Sprintf("new-%d", i), 1)
	}
	check()
}
