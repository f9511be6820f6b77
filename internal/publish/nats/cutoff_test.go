package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestALeaderThatIsCutOff shows a limitation. A leader that is cut off from the other replicas may
// not have noticed that yet. Then a load from it succeeds, but lacks events that the next leader has
// stored. A checkpoint counts such events as lost, see TestLoadOfAnEarlierState. After the partition
// ends, a load returns these events.
//
// The leader of the cluster creates the consumer of a load. So in the test, the leader of the cluster is a
// fourth server, which reaches every replica.
func TestALeaderThatIsCutOff(t *testing.T) {
	c := natstest.StartProcesses(t, 4)
	var at []*Bus // one client for each server
	for _, url := range c.URLs() {
		at = append(at, connect(t, Options{Connection: Connection{URLs: []string{url}, Cluster: publishtest.Cluster}, Replicas: 3}))
	}
	var (
		changed, created     publishtest.Object
		first, second, third uint64
		former, attempt      int
		got                  map[event.Key]event.Acked
	)
	poll.Holds(t, "loaded from a leader that is cut off", func() bool { // retried if the leader notices first
		leader, others := replicasBeside(t, c, at)
		if len(others) == 0 {
			return false
		}
		former = leader
		attempt++
		changed = publishtest.Object{Name: fmt.Sprint("changed-", attempt), Version: 1}
		created = publishtest.Object{Name: fmt.Sprint("created-", attempt), Version: 1}
		first = publishStored(t, at[former], changed.Message(t, 0))
		for _, n := range others {
			poll.Holds(t, "stored by every replica", func() bool { return c.Servers[n].Stored("KUBERELAY") >= first })
		}
		for _, n := range others {
			c.Part(former, n)
		}
		connected := at[others[0]]
		poll.Holds(t, "another leader", func() bool {
			ctx, cancel := soon(t)
			defer cancel()
			leader, err := c.Leader(ctx, connected.conn.JS, "KUBERELAY")
			return err == nil && leader != former
		})
		changed.Version = 2
		second = publishStored(t, connected, changed.Message(t, first))
		third = publishStored(t, connected, created.Message(t, 0))
		var err error
		poll.Holds(t, "an answer of the former leader", func() bool {
			got, err = loadSoon(t, at[former])
			return err == nil || errors.Is(err, stream.ErrNoLeader)
		})
		if err != nil {
			c.Join()
		}
		return err == nil
	})
	if a := got[changed.Key()]; a.Position != first || a.ResourceVersion != "1" {
		t.Errorf("loaded %v of the changed object, want version 1 at %d", a, first)
	}
	if a, ok := got[created.Key()]; ok {
		t.Errorf("loaded %v of an object that the former leader can't know", a)
	}

	c.Join()
	poll.Holds(t, "corrected", func() bool {
		got, err := loadSoon(t, at[former])
		return err == nil && got[changed.Key()].Position == second && got[created.Key()].Position == third
	})
}

// replicasBeside returns the server that leads the stream, and its two other replicas. If the leader
// of the cluster is itself a replica, it asks the server to move that replica, and returns no
// replicas.
func replicasBeside(t testing.TB, c *natstest.Processes, at []*Bus) (leader int, others []int) {
	t.Helper()
	cluster, err := c.ClusterLeader(0)
	if err != nil {
		return 0, nil
	}
	ctx, cancel := soon(t)
	defer cancel()
	s, err := at[cluster].conn.JS.Stream(ctx, "KUBERELAY")
	if err != nil {
		return 0, nil
	}
	of := s.CachedInfo().Cluster
	names := []string{of.Leader}
	for _, r := range of.Replicas {
		if r.Current {
			names = append(names, r.Name)
		}
	}
	if len(names) < 3 || of.Leader == "" {
		return 0, nil
	}
	if name := fmt.Sprint("server-", cluster); slices.Contains(names, name) {
		_, _ = at[cluster].conn.NC.RequestWithContext(ctx, "$JS.API.STREAM.PEER.REMOVE.KUBERELAY", fmt.Appendf(nil, `{"peer": %q}`, name)) // an error is ignored, because the caller retries
		return 0, nil
	}
	for n := range at {
		switch {
		case fmt.Sprint("server-", n) == of.Leader:
			leader = n
		case n != cluster:
			others = append(others, n)
		}
	}
	return leader, others
}

// loadSoon is like load, but returns the error. A consumer on a replica that the client can't reach
// never responds.
func loadSoon(t testing.TB, bus *Bus) (map[event.Key]event.Acked, error) {
	t.Helper()
	ctx, cancel := soon(t)
	defer cancel()
	loaded := map[event.Key]event.Acked{}
	return loaded, bus.Load(ctx, func(k event.Key, a event.Acked) error { loaded[k] = a; return nil })
}

// soon bounds a request that may never get a response because of a network partition.
func soon(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 500*time.Millisecond)
}
