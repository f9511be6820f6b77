package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
)

// checkpointGate limits the batches that the partitions of a checkpoint topic accept.
type checkpointGate struct {
	client *broker.Client
	topic  string

	mu      sync.Mutex
	left    map[int]int   // number of batches that a partition still accepts; a partition without an entry accepts all
	refusal int           // number of further refused attempts until refused is closed
	refused chan struct{} // closed when refusal reaches 0
}

// newCheckpointGate returns a gate for w's writers.
func newCheckpointGate(t *testing.T, w *writers) *checkpointGate {
	t.Helper()
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	g := &checkpointGate{client: client, topic: DefaultCheckpointTopic(w.opts.Topic)}
	w.opts.produce = g.produce
	return g
}

// close lets each partition in left accept that number of further batches. The returned channel is
// closed after some refused attempts.
func (g *checkpointGate) close(left map[int]int) (refused <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.refusal, g.refused = left, 6, make(chan struct{})
	return g.refused
}

// open lets all partitions accept batches again.
func (g *checkpointGate) open() { g.close(nil) }

func (g *checkpointGate) produce(ctx context.Context, topic string, partition int, batch []byte) (int64, error) {
	if topic != g.topic {
		return g.client.Produce(ctx, topic, partition, batch)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	left, limited := g.left[partition]
	if limited && left == 0 {
		if g.refusal--; g.refusal == 0 {
			close(g.refused)
		}
		return 0, io.ErrUnexpectedEOF
	}
	base, err := g.client.Produce(ctx, topic, partition, batch)
	if limited && err == nil {
		g.left[partition]--
	}
	return base, err
}

// TestATakeOverIsKilledWhileItRecords verifies that no event is lost if a takeover is killed while
// it records the events that the previous writer did not record. The topic's state says that
// everything before its marker is recorded, so the takeover must not store the state first.
func TestATakeOverIsKilledWhileItRecords(t *testing.T) {
	w := newWriters(t, 2)
	gate := newCheckpointGate(t, w)
	first := w.open()
	s, _ := first.current()
	if err := s.recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	gate.close(map[int]int{0: 0, 1: 0})
	want := w.publishSome(first, "web-", 20)
	in := map[int]bool{}
	for _, position := range want {
		in[publish.Partition(position)] = true
	}
	if len(in) != 2 {
		t.Fatalf("all events are in one partition: %v", want)
	}
	crash(first)

	stuck := gate.close(map[int]int{1: 1}) // the takeover's marker, but none of the events
	second := openBus(t, w.opts)
	select {
	case <-stuck:
	case <-time.After(limit):
		t.Fatal("the second writer does not reach its first record")
	}
	crash(second)

	gate.open()
	third := w.open()
	w.wantLoaded(third, want)
	for k, position := range want {
		if got := w.mustPublish(third, w.messageOf(k, 1, 0)); got != position {
			t.Errorf("%s published again is at %d, want %d", k, got, position)
		}
	}
	w.wantNoRepeat(20)
}

// TestATakeoverIsKilledWhileItRecordsALoss verifies the takeover after one that was killed while it
// recorded a loss. Other events of the cluster are at the offset of the lost event, and the killed
// takeover has recorded some of them. The event at the highest recorded offset then exists, and
// proves nothing.
func TestATakeoverIsKilledWhileItRecordsALoss(t *testing.T) {
	for taken := range 7 { // the takeover's marker, the removal of the previous writer's marker, two events, the lost event, the state, and the marker of the event partition
		t.Run(fmt.Sprint(taken, " batches are stored"), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.BatchBytes = 1 // one record in a batch
			gate := newCheckpointGate(t, w)
			b := w.open()
			first, lost := w.message("first", 1, 0), w.message("lost", 1, 0)
			want := map[event.Key]uint64{first.Key: w.mustPublish(b, first)}
			w.lose(b, lost, publish.Offset(want[first.Key])+1, false)
			gate.close(map[int]int{0: 0}) // later events are not recorded
			for _, name := range []string{"second", "third"} {
				m := w.message(name, 1, 0)
				want[m.Key] = w.mustPublish(b, m)
			}
			crash(b)
			stuck := gate.close(map[int]int{0: taken})
			b = openBus(t, w.opts)
			select {
			case <-stuck:
			case <-time.After(limit):
				t.Fatal("the takeover does not reach its first record")
			}
			crash(b)
			gate.open()
			w.wantLoaded(w.open(), want)
		})
	}
}

// TestWhatCannotBeRecordedIsNotSent verifies that a writer stops sending events if the checkpoint
// topic accepts no records. Otherwise, it would leave more and more events for the next writer to
// read. The next event waits and then times out, and is certainly not stored.
func TestWhatCannotBeRecordedIsNotSent(t *testing.T) {
	w := newWriters(t, 1)
	gate := newCheckpointGate(t, w)
	w.opts.MaxInFlight = 2
	b := w.open()
	gate.close(map[int]int{0: 0})
	want := map[event.Key]uint64{}
	var refused *event.Message
	for refused == nil {
		if len(want) > 50 {
			t.Fatalf("%d events are stored, and none of them is recorded", len(want))
		}
		m := w.message(fmt.Sprint("web-", len(want)), 1, 0)
		position, err := w.publish(b, m)
		switch {
		case err == nil:
			want[m.Key] = position
		case errors.Is(err, publish.ErrNotSent):
			refused = m
		default:
			t.Fatalf("got %v, want it to be given back as %v", err, publish.ErrNotSent)
		}
	}
	gate.open()
	after := w.message("after", 1, 0)
	await(t, "published", func() (err error) {
		want[after.Key], err = w.publish(b, after)
		return err
	})
	w.wantNoRepeat(len(want)) // none of the returned events is stored
	w.wantLoaded(b, want)
	want[refused.Key] = w.mustPublish(b, refused)
	w.wantLoaded(b, want)
	w.wantNoRepeat(len(want))
}
