package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/takeover"
)

// lose records the event of m at an offset of partition 0 that does not hold it, as if the brokers had
// lost the event: in an unclean election, in a power loss, or because a disk was restored from an
// earlier copy.
func (w *writers) lose(b *Bus, m *event.Message, offset int64, deleted bool) {
	w.t.Helper()
	s, err := b.current()
	if err != nil {
		w.t.Fatal(err)
	}
	key := []byte(event.PartitionKey(w.opts.Cluster, m.Key))
	s.recorder.Put(key, entry{UID: m.Acked.UID, ResourceVersion: "2", Deleted: deleted, Topic: w.opts.Topic, Offset: offset})
	if err := s.flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestALostDeleteIsPublishedAgain verifies that a takeover detects a lost delete at the end of a
// partition. It then loads the earlier event that the topic still holds, so the delete is published
// again. An earlier version forgot the object and its delete.
func TestALostDeleteIsPublishedAgain(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m, neighbour := w.message("web", 1, 0), w.message("neighbor", 1, 0)
	want := map[event.Key]uint64{m.Key: w.mustPublish(b, m), neighbour.Key: w.mustPublish(b, neighbour)} // the later event is not lost
	w.lose(b, m, publish.Offset(want[m.Key])+100, true)
	crash(b)
	for range 2 { // the first takeover records what it finds for the second
		b = w.open()
		w.wantLoaded(b, want)
		w.wantLoaded(b, want)
		crash(b)
	}
}

// TestALostTailIsCoveredByATakeoverThatFailed verifies that a takeover detects a lost event if a
// failed takeover wrote its marker at the offset of the event, so that the log is as long as
// before.
func TestALostTailIsCoveredByATakeoverThatFailed(t *testing.T) {
	var stuck atomic.Bool
	var stored atomic.Int32 // markers that the failing takeover has stored
	var topic string
	w := newWriters(t, 1)
	client, err := broker.New(w.opts.Broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	w.opts.produce = func(ctx context.Context, to string, partition int, batch []byte) (int64, error) {
		if to != topic && stuck.Load() && stored.Load() > 0 {
			return 0, context.DeadlineExceeded
		}
		base, err := client.Produce(ctx, to, partition, batch)
		if err == nil && to == topic && stuck.Load() {
			stored.Add(1)
		}
		return base, err
	}
	topic = w.opts.Topic
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	w.lose(b, m, publish.Offset(at)+1, true)
	crash(b)

	stuck.Store(true)
	b = openBus(t, w.opts)
	await(t, "a takeover has put its marker over the lost event", func() error {
		if stored.Load() == 0 {
			return fmt.Errorf("not yet: %w", b.Ready())
		}
		return nil
	})
	crash(b)
	stuck.Store(false)
	b = w.open()
	w.wantLoaded(b, map[event.Key]uint64{m.Key: at})
	w.wantLoaded(b, map[event.Key]uint64{m.Key: at})
}

// TestALostTailIsCoveredByAnotherCluster verifies that a takeover detects a lost event even if another
// cluster that shares the topic has written its marker at the offset of the event.
func TestALostTailIsCoveredByAnotherCluster(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m := w.message("web", 1, 0)
	at := w.mustPublish(b, m)
	w.lose(b, m, publish.Offset(at)+1, false)
	crash(b)
	other := newWriters(t, 1)
	other.opts.Topic, other.opts.CheckpointTopic = w.opts.Topic, other.opts.Cluster+".checkpoint"
	crash(other.open()) // its marker is where the lost event was
	b = w.open()
	w.wantLoaded(b, map[event.Key]uint64{m.Key: at})
	w.wantLoaded(b, map[event.Key]uint64{m.Key: at})
}

// TestATakeoverReportsALoss verifies that PossibleLosses grows before a session accepts writes if the
// takeover found that a partition lost records or that a topic is missing. Otherwise, a consistency
// point could precede the load that finds the loss. After another takeover, points need not wait.
func TestATakeoverReportsALoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(w *writers, b *Bus, at uint64)
		want bool
	}{
		"nothing": {lose: func(*writers, *Bus, uint64) {}},
		"the end of a partition": {want: true, lose: func(w *writers, b *Bus, at uint64) {
			s := w.flushed(b)
			s.recorder.Put([]byte(event.PartitionKey(w.opts.Cluster, aPod)), entry{UID: "uid-of-a", ResourceVersion: "2", Topic: "kr.pods", Partition: publish.Partition(at), Offset: publish.Offset(at) + 100})
			w.flushed(b)
		}},
		"a topic": {want: true, lose: func(w *writers, _ *Bus, _ uint64) { w.deleteTopic("kr.pods") }},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			w.opts.Topic, w.opts.CheckpointTopic = "kr.{resource}", "checkpoint"
			b := w.open()
			at := w.opened(b, aPod)
			s := w.flushed(b)
			before := b.PossibleLosses()
			c.lose(w, b, at)
			s.end(errRenew)
			awaitAnother(t, b, s)
			if got := b.PossibleLosses() > before; got != c.want {
				t.Errorf("%d possible losses before the takeover, and %d after it", before, b.PossibleLosses())
			}
		})
	}
}

// acknowledgeOneMore lets the session assume that one more record of a partition was acknowledged.
func acknowledgeOneMore(t *testing.T, of *topic, p int) {
	t.Helper()
	c, end := of.senders[p].Config, of.senders[p].LastStored().Next
	c.Produce = func(context.Context, string, int, []byte) (int64, error) { return end, nil }
	ctx, cancel := context.WithCancel(t.Context())
	l := sender.New(c)
	l.Add(&sender.Item{Record: recordbatch.Record{Key: []byte("lost")}, Done: func(int64, error) { cancel() }})
	l.Run(ctx)
	of.senders[p] = l
}

// TestALostTailIsCoveredWhileTheSessionLasts verifies that a load detects a lost record although
// the log is as long as before and the session's marker is in its place. Only the last record
// reveals the loss.
func TestALostTailIsCoveredWhileTheSessionLasts(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	w.load(b)
	s, err := b.current()
	if err != nil {
		t.Fatal(err)
	}
	other := newWriters(t, 1)
	other.opts.Topic, other.opts.CheckpointTopic = w.opts.Topic, other.opts.Cluster+".checkpoint"
	crash(other.open())
	acknowledgeOneMore(t, s.topics[w.opts.Topic], 0) // as if the other cluster's marker were at the offset of the session's last record
	if err := b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err == nil {
		t.Error("loaded what the topic does not hold")
	}
	awaitAnother(t, b, s)
	w.wantLoaded(b, want)
}

// TestWhatIsNotLostIsNotReadAgain verifies that a takeover that finds everything in place trusts
// the checkpoint, even if another cluster has written to the topic since.
func TestWhatIsNotLostIsNotReadAgain(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	first := w.flushed(b).topics[w.opts.Topic].markers[0]
	crash(b)
	other := newWriters(t, 1)
	other.opts.Topic, other.opts.CheckpointTopic = w.opts.Topic, other.opts.Cluster+".checkpoint"
	crash(other.open())
	b = w.open()
	s, err := b.current()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := s.readCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := s.topics[w.opts.Topic]
	p := recorded.Take(w.opts.Topic, 1).Begin(0, 0, now.markers[0])
	var got []takeover.Read
	for read, more := p.Next(); more; read, more = p.Next() {
		got = append(got, read)
		if err := s.readFor(t.Context(), place{now, 0}, read, p); err != nil {
			t.Fatal(err)
		}
	}
	last := event.PartitionKey(w.opts.Cluster, w.message("web-2", 1, 0).Key)
	reads := []takeover.Read{ // the marker of the previous writer, the last of its three events, and the offsets that follow
		{From: first.Offset, To: first.Offset + 1, Key: s.markerKey(w.opts.Topic, 0)},
		{From: 3, To: 4, Key: last},
		{From: 4, To: now.markers[0].Offset},
	}
	if !slices.Equal(got, reads) {
		t.Errorf("the partition is read as %+v, want %+v", got, reads)
	}
	w.wantLoaded(b, want)
}

// TestATopicIsNotSeenForAWhile verifies that a takeover with another event topic removes the
// entries of the first topic, and that the next takeover with the first topic reads it from its
// start.
func TestATopicIsNotSeenForAWhile(t *testing.T) {
	w := newWriters(t, 1)
	topic := w.opts.Topic
	w.opts.CheckpointTopic = topic + ".checkpoint"
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	w.flushed(b)
	crash(b)
	crash(w.open()) // its marker comes after the events

	w.opts.Topic = topic + ".elsewhere"
	b = w.open()
	w.wantLoaded(b, map[event.Key]uint64{})
	elsewhere := w.message("web-0", 1, 0)
	wantElsewhere := map[event.Key]uint64{elsewhere.Key: w.mustPublish(b, elsewhere)}
	w.wantLoaded(b, wantElsewhere)
	crash(b)

	w.opts.Topic = topic
	b = w.open()
	w.wantLoaded(b, want)
	w.wantLoaded(b, want)
	crash(b)
	w.opts.Topic = topic + ".elsewhere"
	w.wantLoaded(w.open(), wantElsewhere)
}

// TestATakeoverIsKilledWhileItSetsATopicAside_Slow verifies that the next takeover trusts no entry of a
// topic if the previous one was killed while it set the topic aside. Some entries of the topic are
// then removed already. The checkpoint topic has two partitions: one may have stored all records of
// the killed takeover, and the other none.
func TestATakeoverIsKilledWhileItSetsATopicAside_Slow(t *testing.T) {
	for taken := range 6 { // the takeover's marker, the topic's state, and some of the removals
		t.Run(fmt.Sprint(taken, " batches are stored"), func(t *testing.T) {
			w := newWriters(t, 2)
			topic := w.opts.Topic
			w.opts.CheckpointTopic = topic + ".checkpoint"
			w.opts.BatchBytes = 1 // one record in a batch
			gate := newCheckpointGate(t, w)
			b := w.open()
			want, in := map[event.Key]uint64{}, map[int]int{}
			for i := 0; in[0] < 3 || in[1] < 3; i++ {
				m := w.message(fmt.Sprint("web-", i), 1, 0)
				want[m.Key] = w.mustPublish(b, m)
				in[publish.Partition(want[m.Key])]++
			}
			w.flushed(b)
			crash(b)
			crash(w.open()) // its markers come after the events
			w.opts.Topic = topic + ".elsewhere"
			stuck := gate.close(map[int]int{0: taken})
			b = openBus(t, w.opts)
			select {
			case <-stuck:
			case <-time.After(limit):
				t.Fatal("the takeover does not reach its first record")
			}
			crash(b)
			gate.open()
			w.opts.Topic = topic
			w.wantLoaded(w.open(), want)
		})
	}
}
