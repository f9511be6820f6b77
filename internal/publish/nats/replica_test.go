package nats

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// replicaReads is how often a stream of three replicas is read while two of them are
// behind. The server picks one at random each time, so that the leader is picked each
// time in one of 10^19 runs.
const replicaReads = 40

// heldByAll is how many objects every replica of the stream of [behind] has.
const heldByAll = 3

// behind makes a stream whose followers have not applied the last messages: one that
// updates an object, one that creates another, one that deletes a third. It gives what
// the leader holds.
func behind(t *testing.T) (bus *Bus, want map[event.Key]event.Acked, release func()) {
	t.Helper()
	c := natstest.StartCluster(t, 3)
	bus = connect(t, Options{URLs: c.URLs, Cluster: publishtest.Cluster, Replicas: 3})
	want = map[event.Key]event.Acked{}
	put := func(o publishtest.Object) {
		t.Helper()
		k := o.Key()
		m := o.Message(t, want[k].Position)
		acked := m.Acked
		waitFor(t, "stored", func() bool {
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

// TestLoadFromAReplicaThatIsBehind: the server places the consumer of a load on any
// replica. A replica that was catching up returned older states without an error.
func TestLoadFromAReplicaThatIsBehind(t *testing.T) {
	bus, want, _ := behind(t)
	for range replicaReads {
		if diff := cmp.Diff(want, load(t, bus), whenever); diff != "" {
			t.Fatalf("loaded (-want +got):\n%s", diff)
		}
	}
}

// TestSubscribeToAReplicaThatIsBehind: a subscription to the last event of each object
// mistook a replica without further messages for one that had reached the end of the
// stream, and continued after that end. It never got the messages that the replica lacked.
func TestSubscribeToAReplicaThatIsBehind(t *testing.T) {
	bus, want, release := behind(t)
	subscriber, err := reader.Connect(t.Context(), bus.opts.connection())
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
