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

// checkpointGate lets partitions of a checkpoint topic take no more records.
type checkpointGate struct {
	client *broker.Client
	topic  string

	mu      sync.Mutex
	left    map[int]int   // number of batches that a partition still accepts; without an entry, all
	refusal int           // until then refused is closed
	refused chan struct{} // closed after this number of refused attempts
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

// close lets each of the partitions accept this number of further batches. The channel is closed
// after some refused attempts.
func (g *checkpointGate) close(left map[int]int) (refused <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.refusal, g.refused = left, 6, make(chan struct{})
	return g.refused
}

// open lets all through again.
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

// TestATakeOverIsKilledWhileItRecords: a takeover records the events that the previous
// writer did not. The topic's state, which says that everything before its marker is
// recorded, must not be stored first.
func TestATakeOverIsKilledWhileItRecords(t *testing.T) {
	w := newWriters(t, 2)
	gate := newCheckpointGate(t, w)
	first := w.open()
	s, _ := first.current()
	if err := s.recorder.flush(t.Context()); err != nil {
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

	stuck := gate.close(map[int]int{1: 1}) // its marker, and nothing of what is to be recorded
	second := openBus(t, w.opts)
	select {
	case <-stuck:
	case <-time.After(limit):
		t.Fatal("the second writer does not come to record")
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

// TestATakeoverIsKilledWhileItRecordsALoss: other events of the cluster are at the offset
// of the lost one, and the takeover has recorded some of them. The event at the highest
// recorded offset then exists and proves nothing.
func TestATakeoverIsKilledWhileItRecordsALoss(t *testing.T) {
	for taken := range 7 { // its marker, the forgotten one of the writer before, two events, the lost one, the state, and the marker of the event partition
		t.Run(fmt.Sprint(taken, " batches are stored"), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.BatchBytes = 1 // one record in a batch
			gate := newCheckpointGate(t, w)
			b := w.open()
			first, lost := w.message("first", 1, 0), w.message("lost", 1, 0)
			want := map[event.Key]uint64{first.Key: w.mustPublish(b, first)}
			w.lose(b, lost, publish.Offset(want[first.Key])+1, false)
			gate.close(map[int]int{0: 0}) // what follows is not recorded
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
				t.Fatal("the takeover does not come to record")
			}
			crash(b)
			gate.open()
			w.wantLoaded(w.open(), want)
		})
	}
}

// TestWhatCannotBeRecordedIsNotSent: otherwise a writer whose checkpoint topic accepts
// nothing would leave more and more events for the next writer to read. The event waits and
// then times out, and is certainly not stored.
func TestWhatCannotBeRecordedIsNotSent(t *testing.T) {
	w := newWriters(t, 1)
	gate := newCheckpointGate(t, w)
	w.opts.MaxInFlight, w.opts.AckTimeout = 2, 8*time.Second
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
	w.wantNoRepeat(len(want)) // nothing of what was given back
	w.wantLoaded(b, want)
	want[refused.Key] = w.mustPublish(b, refused)
	w.wantLoaded(b, want)
	w.wantNoRepeat(len(want))
}
