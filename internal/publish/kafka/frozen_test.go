package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// freezer suspends the responses of one partition of the event topic, like a leader that hangs.
type freezer struct {
	mu     sync.Mutex
	thawed chan struct{} // closed while it is not frozen
	held   atomic.Int64  // batches that wait for the thaw
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawed = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.thawed)
}

func (f *freezer) wait(ctx context.Context) error {
	f.mu.Lock()
	thawed := f.thawed
	f.mu.Unlock()
	f.held.Add(1)
	defer f.held.Add(-1)
	select {
	case <-thawed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freezable returns writers for a topic, and a freezer that can freeze one of its partitions.
func freezable(t *testing.T, partitions, frozen int) (*writers, *freezer) {
	t.Helper()
	w := newWriters(t, partitions)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	f := &freezer{}
	f.freeze()
	f.thaw()
	w.opts.produce = func(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
		if topic == w.opts.Topic && partition == frozen {
			if err := f.wait(ctx); err != nil {
				return 0, err
			}
		}
		return client.Produce(ctx, topic, partition, batch)
	}
	return w, f
}

// TestAFrozenPartitionIsNotInTheWay verifies that a partition whose leader hangs does not delay the
// others. More events than the in-flight limit wait for that partition. They neither block Publish
// nor use up the limit for the other partitions, and no event is lost. In an earlier version, they
// used up the whole limit until they timed out, and Publish blocked for all partitions.
func TestAFrozenPartitionIsNotInTheWay(t *testing.T) {
	const partitions, frozen = 4, 1
	w, f := freezable(t, partitions, frozen)
	w.opts.MaxInFlight = 64
	b := w.open()
	var stuck, others []*event.Message
	for i := 0; len(stuck) < 8*w.opts.MaxInFlight; i++ {
		m := w.message(fmt.Sprint("web-", i), 1, 0)
		if binding.Partition([]byte(event.PartitionKey(w.opts.Cluster, m.Key)), partitions) == frozen {
			stuck = append(stuck, m)
		} else if len(others) < 100 {
			others = append(others, m)
		}
	}

	f.freeze()
	var given atomic.Int32 // events that the bus returned to the caller; they are certainly not stored
	results := make(chan error, len(stuck))
	published := make(chan struct{})
	want := map[event.Key]uint64{}
	go func() { // like one worker, which takes the next key whatever its partition is
		defer close(published)
		for _, m := range stuck {
			b.Publish(t.Context(), m, func(_ uint64, err error) {
				if errors.Is(err, publish.ErrNotSent) {
					given.Add(1)
				}
				results <- err
			})
		}
		for _, m := range others {
			want[m.Key] = w.mustPublish(b, m)
		}
	}()
	select {
	case <-published:
	case <-time.After(limit):
		t.Fatal("events of other partitions wait for the frozen one")
	}
	// The bus returns the events that are in no batch, so that they wait in the workqueue instead.
	await(t, "the events behind the batch are returned", func() error {
		if left := len(stuck) - int(given.Load()); left > w.opts.MaxInFlight/partitions || left == len(stuck) {
			return fmt.Errorf("%d of %d are left", left, len(stuck))
		}
		return nil
	})
	if err := b.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}

	f.thaw()
	for range stuck {
		<-results
	}
	for _, m := range stuck {
		await(t, "published", func() (err error) {
			want[m.Key], err = w.publish(b, m)
			return err
		})
	}
	w.wantNoRepeat(len(want))
	w.wantLoaded(b, want)
}

// TestACheckpointPartitionThatIsStuck verifies that a stuck partition of the checkpoint topic stops
// only the event partitions that are recorded in it.
func TestACheckpointPartitionThatIsStuck(t *testing.T) {
	w := newWriters(t, 2)
	gate := newCheckpointGate(t, w)
	w.opts.MaxInFlight = 4
	b := w.open()
	gate.close(map[int]int{0: 0})
	want := map[event.Key]uint64{}
	var full bool
	for i := 0; !full || len(want) < 200; i++ {
		m := w.message(fmt.Sprint("web-", i), 1, 0)
		if full && binding.Partition([]byte(event.PartitionKey(w.opts.Cluster, m.Key)), 2) == 0 {
			continue
		}
		position, err := w.publish(b, m)
		switch {
		case err == nil:
			want[m.Key] = position
		case errors.Is(err, publish.ErrNotSent) && !full:
			full = true
		default:
			t.Fatalf("%d events are stored, and then: %v", len(want), err)
		}
	}
	gate.open()
	await(t, "loaded", func() error {
		got := map[event.Key]uint64{}
		err := b.Load(t.Context(), func(k event.Key, a event.Acked) error {
			got[k] = a.Position
			return nil
		})
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("loaded %d objects, want %d", len(got), len(want))
		}
		return err
	})
}

// TestReadyWithoutOneLeader verifies that the bus stays ready if one partition has no leader,
// because the other partitions respond. An earlier version alternated between ready and not ready,
// and each change reloaded the checkpoint.
func TestReadyWithoutOneLeader(t *testing.T) {
	cluster, w := newFakeWriters(t)
	b := w.open()
	var looks, unready atomic.Int32
	ended := make(chan struct{})
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: w.opts.Topic, Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1,
	})
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if b.Ready() != nil {
			unready.Add(1)
		}
		if looks.Add(1) == 40 {
			close(ended)
		}
		return nil, nil, false
	})
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatalf("only %d looks", looks.Load())
	}
	if n := unready.Load(); n > 0 {
		t.Errorf("not ready at %d of %d looks: %v", n, looks.Load(), b.Ready())
	}
}

// TestNotReadyWithoutAnyBroker verifies that the bus is not ready while no broker responds, even if
// the connections stay open.
func TestNotReadyWithoutAnyBroker(t *testing.T) {
	kb, proxy := proxiedBroker(t)
	o := testOptions(proxy.Addr())
	o.AckTimeout = time.Second
	w := &writers{t, o}
	b := w.open()
	kb.Freeze()
	await(t, "not ready", func() error {
		if b.Ready() == nil {
			return io.EOF
		}
		return nil
	})
	kb.Thaw()
	await(t, "ready again", b.Ready)
}

// TestIsPast verifies that the age of a session depends on both clocks.
func TestIsPast(t *testing.T) {
	const limit = 12 * time.Hour
	for name, c := range map[string]struct {
		monotonic, wall time.Duration
		want            bool
	}{
		"young":                     {time.Hour, time.Hour, false},
		"old":                       {13 * time.Hour, 13 * time.Hour, true},
		"the machine slept":         {time.Hour, 13 * time.Hour, true},
		"set back, and old":         {13 * time.Hour, time.Hour, true},
		"set back, and perhaps old": {time.Hour, -time.Hour, true},
		"slowed down":               {time.Hour, time.Hour - clockStep, false},
		"set forward by a bit":      {time.Hour, 2 * time.Hour, false},
	} {
		if got := isPast(limit, c.monotonic, c.wall); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
