package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// replicaReads is how often the test reads a stream with three replicas, two of which are behind.
// The server picks a random replica each time, so only one run in 10^19 always picks the leader.
const replicaReads = 40

// heldByAll is the number of objects that every replica of the stream from [behind] has.
const heldByAll = 3

// behind creates a stream whose followers have not applied the last messages: an update of an
// object, a create, and a delete. It returns the leader's events.
func behind(t *testing.T) (bus *Bus, want map[event.Key]event.Acked, release func()) {
	t.Helper()
	c := natstest.StartCluster(t, 3)
	bus = connect(t, Options{Connection: Connection{URLs: c.URLs, Cluster: publishtest.Cluster}, Replicas: 3})
	want = map[event.Key]event.Acked{}
	put := func(o publishtest.Object) {
		t.Helper()
		k := o.Key()
		m := o.Message(t, want[k].Position)
		acked := m.Acked
		poll.Holds(t, "stored", func() bool {
			position, err := publishNow(t, bus, m)
			if acked.Position = position; err != nil && !errors.Is(err, stream.ErrNoStream) {
				t.Fatal(err)
			}
			return err == nil
		})
		want[k] = acked
	}
	for _, name := range [heldByAll]string{"updated", "deleted", "unchanged"} {
		put(publishtest.Object{Name: name, Version: 1})
	}
	release = c.HoldBack("KUBERELAY")
	for _, o := range []publishtest.Object{
		{Name: "updated", Version: 2}, {Name: "created", Version: 1}, {Name: "deleted", Version: 2, Deleted: true},
	} {
		put(o)
	}
	return bus, want, release
}

// TestLoadFromAReplicaThatIsBehind verifies that a load does not read from a replica that is behind.
// The server places the consumer of a load on any replica. A replica that was catching up once
// returned older states without an error.
func TestLoadFromAReplicaThatIsBehind(t *testing.T) {
	bus, want, _ := behind(t)
	for range replicaReads {
		if diff := cmp.Diff(want, load(t, bus), whenever); diff != "" {
			t.Fatalf("loaded (-want +got):\n%s", diff)
		}
	}
}

// TestConflictWhileReplicasAreBehind verifies that the event on the bus is read from the leader
// after a conflict.
func TestConflictWhileReplicasAreBehind(t *testing.T) {
	bus, want, _ := behind(t)
	for range replicaReads {
		for k, acked := range want {
			_, err := publishNow(t, bus, publishtest.Object{Name: k.Name, Version: 9}.Message(t, acked.Position+100))
			var conflict *publish.ConflictError
			if !errors.As(err, &conflict) || conflict.Bus.Position != acked.Position || conflict.Bus.ResourceVersion != acked.ResourceVersion {
				t.Fatalf("publishing %s: %v, want a conflict with version %s at %d", k, err, acked.ResourceVersion, acked.Position)
			}
		}
	}
}

// TestSubscribeToAReplicaThatIsBehind verifies that a subscription receives the messages that its
// replica lacked at first. An earlier version subscribed to the last event of each object, and
// mistook a replica without further messages for one at the end of the stream. It continued after
// that end, and never received the messages that the replica lacked.
func TestSubscribeToAReplicaThatIsBehind(t *testing.T) {
	bus, want, release := behind(t)
	subscriber, err := reader.Connect(t.Context(), bus.opts.Connection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { subscriber.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var begun, ended sync.WaitGroup
	begun.Add(replicaReads)
	for range replicaReads {
		ended.Go(func() {
			reached, n := map[event.Key]uint64{}, 0
			errDone := errors.New("done")
			err := subscriber.Subscribe(ctx, publish.SubscribeOptions{From: publish.FromLast}, func(m *event.Message, d publish.Delivery) error {
				if n++; n == heldByAll {
					begun.Done()
				}
				if reached[m.Key] = d.Position; m.Key.Name == "end" {
					return errDone
				}
				return nil
			})
			if !errors.Is(err, errDone) {
				t.Errorf("subscription: %v", err)
			}
			for k, a := range want {
				if reached[k] != a.Position {
					t.Errorf("%s: the last event that came is at %d, the stream has one at %d", k.Name, reached[k], a.Position)
				}
			}
		})
	}
	begun.Wait()
	release()
	publishOK(t, bus, publishtest.Object{Name: "end", Version: 1}.Message(t, 0))
	ended.Wait()
}

// TestReplicated verifies that concurrent writers of one subject store exactly one event on a stream
// with three replicas, whatever results the writers get. A retry then succeeds or returns a
// conflict.
func TestReplicated(t *testing.T) {
	servers := cluster(t, 3)
	var bus *Bus
	poll.Holds(t, "connected to the cluster", func() bool {
		var err error
		if bus, err = Connect(t.Context(), Options{Connection: Connection{URLs: []string{servers[0].URL}, Cluster: publishtest.Cluster}, Replicas: 3}); err != nil {
			return false
		}
		waitReady(t, bus)
		return true
	})
	t.Cleanup(func() { bus.Close() })
	poll.Holds(t, "stored", func() bool { // the server of this connection may not know the stream yet
		_, err := publishNow(t, bus, publishtest.Object{Name: "first", Version: 1}.Message(t, 0))
		return err == nil
	})
	const objects, writers = 200, 4
	type completion struct {
		object int
		err    error
	}
	completions := make(chan completion, objects*writers)
	for i := range objects {
		for range writers {
			m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
			bus.Publish(t.Context(), m, func(_ uint64, err error) { completions <- completion{i, err} })
		}
	}
	results := map[publish.Result]int{}
	for range objects * writers {
		o := <-completions
		results[publish.ResultOf(o.err)]++
		var conflict *publish.ConflictError
		if errors.As(o.err, &conflict) || errors.Is(o.err, publish.ErrTooLarge) {
			t.Errorf("%v", o.err)
		}
	}
	if results[publish.ResultBusy] == 0 {
		t.Errorf("no write was refused as another was under way (10164): %v", results)
	}
	for i := range objects {
		m := publishtest.Object{Name: fmt.Sprintf("web-%d", i), Version: 1}.Message(t, 0)
		poll.Holds(t, "stored", func() bool {
			_, err := publishNow(t, bus, m)
			var conflict *publish.ConflictError
			if errors.As(err, &conflict) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	stream, err := bus.conn.JS.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("kuberelay.>"))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.State.Subjects) != 1+objects {
		t.Errorf("the bus holds %d objects, want %d", len(info.State.Subjects), 1+objects)
	}
	for subject, n := range info.State.Subjects {
		if n != 1 {
			t.Errorf("the bus holds %d events of %s, want 1", n, subject)
		}
	}
}

func cluster(t *testing.T, n int) []*natstest.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range n {
		port := natstest.FreePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var servers []*natstest.Server
	for i, port := range ports {
		servers = append(servers, natstest.Start(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("server-%d", i)
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
			o.Routes = routes
		}))
	}
	return servers
}
