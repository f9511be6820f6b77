package kafka

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
)

// TestAnInvalidLastRecordIsForeign verifies that an invalid record after the last event of an
// object counts as foreign. Until the object is published again, each load and each takeover yields
// the state before the invalid record, marked as foreign.
func TestAnInvalidLastRecordIsForeign(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	answered, m, neighbor := w.message("answered", 1, 0), w.message("web", 1, 0), w.message("neighbor", 1, 0)
	w.mustPublish(b, answered)
	at := w.mustPublish(b, m)
	want := map[event.Key]uint64{neighbor.Key: w.mustPublish(b, neighbor)}
	h := newHostile(t, w.opts)
	impossible := []kgo.RecordHeader{
		{Key: "ce_id", Value: []byte("i")}, {Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte(event.Updated)},
		{Key: "ce_uid", Value: []byte(m.Acked.UID)}, {Key: "ce_resourceversion", Value: []byte("2")}, {Key: "ce_sequence", Value: []byte("65535.2")},
	}
	key := func(k event.Key) string { return event.PartitionKey(w.opts.Cluster, k) }
	h.write(w.opts.Topic, key(answered.Key), "{}", impossible...)
	w.load(b)
	want[answered.Key] = w.mustPublish(b, w.messageOf(answered.Key, 2, at+2))
	h.write(w.opts.Topic, key(m.Key), "{}", impossible...)
	h.write(w.opts.Topic, key(w.message("invented", 1, 0).Key), "{}", impossible...)
	foreign := at + 4
	want[m.Key] = foreign
	for range 3 {
		crash(b)
		b = w.open()
		for range 2 {
			all, err := w.acked(b)
			if err != nil {
				t.Fatal(err)
			}
			got := map[event.Key]uint64{}
			for k, a := range all {
				got[k] = a.Position
				if a.Foreign != (k == m.Key) {
					t.Errorf("%s is loaded as %+v", k, a)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("loaded %v, want %v", got, want)
			}
			if a := all[m.Key]; a.UID != m.Acked.UID || a.ResourceVersion != "1" {
				t.Errorf("the state before the record is loaded as %+v", a)
			}
		}
	}
	want[m.Key] = w.mustPublish(b, w.messageOf(m.Key, 2, foreign))
	for range 2 {
		w.wantLoaded(b, want)
		if all, err := w.acked(b); err != nil || all[m.Key].Foreign {
			t.Errorf("after the answer: %+v, %v", all[m.Key], err)
		}
		crash(b)
		b = w.open()
	}
}

// TestAnInvalidRecordReplacesTheLastEvent verifies that no event is lost if compaction has removed
// the event with the highest recorded offset. Compaction removes the event because an invalid
// record of the same object follows it.
func TestAnInvalidRecordReplacesTheLastEvent(t *testing.T) {
	w := newWriters(t, 1)
	b := w.open()
	m := w.message("web", 1, 0)
	w.mustPublish(b, m)
	w.lose(b, m, w.commitTransaction(), false)
	newHostile(t, w.opts).write(w.opts.Topic, event.PartitionKey(w.opts.Cluster, m.Key), "no event")
	end := endOffsets(t.Context(), t, w.opts.Broker.Addrs[0], w.opts.Topic)[0]
	crash(b)
	all, err := w.acked(w.open())
	if a := all[m.Key]; err != nil || !a.Foreign || a.ResourceVersion != "2" || a.Position != position(0, end-1) {
		t.Errorf("loaded %+v, %v; want version 2 before a foreign record at offset %d", a, err, end-1)
	}
}

// TestAForeignRecordBetweenTwoOfASession verifies that the next session finds a foreign event between
// two events of the previous session, which ended without an answer to it. After the next session has
// answered the foreign event, a takeover does not read it again.
func TestAForeignRecordBetweenTwoOfASession(t *testing.T) {
	for name, loads := range map[string]bool{"before a load": false, "after a load": true} {
		t.Run(name, func(t *testing.T) {
			w := newWriters(t, 1)
			b := w.open()
			m, invented := w.message("web", 1, 0), w.message("invented", 1, 0)
			at := w.mustPublish(b, m)
			w.load(b)
			h := newHostile(t, w.opts)
			h.write(w.opts.Topic, event.PartitionKey(w.opts.Cluster, invented.Key), "{}",
				kgo.RecordHeader{Key: "ce_id", Value: []byte("i")}, kgo.RecordHeader{Key: "ce_specversion", Value: []byte("1.0")}, kgo.RecordHeader{Key: "ce_type", Value: []byte(event.Created)},
				kgo.RecordHeader{Key: "ce_uid", Value: []byte("u")}, kgo.RecordHeader{Key: "ce_resourceversion", Value: []byte("7")}, kgo.RecordHeader{Key: "ce_sequence", Value: []byte("0000.00000000000000000007")})
			forged := at + 1
			if loads {
				w.load(b)
			}
			want := map[event.Key]uint64{invented.Key: forged, m.Key: w.mustPublish(b, w.messageOf(m.Key, 2, at))}
			w.flushed(b)
			if got := w.unreadFrom(b); got != publish.Offset(forged) {
				t.Errorf("the next takeover reads from %d, want %d", got, publish.Offset(forged))
			}
			crash(b)
			b = w.open()
			w.wantLoaded(b, want)
			want[invented.Key] = w.mustPublish(b, w.deletion(invented.Key, forged))
			w.wantLoaded(b, want)
			w.flushed(b)
			if got := w.unreadFrom(b); got != 0 {
				t.Errorf("after the answer, the next takeover reads from %d", got)
			}
			crash(b)
			w.wantLoaded(w.open(), want)
		})
	}
}

// TestOwnRecordsAreNotForeign verifies that the session's own records do not count as foreign if a
// load reads them: before they are acknowledged, or in a range of offsets that has grown over them. In
// an earlier version, the tombstone of a delete counted as foreign, and the object got a second
// delete. Each takeover then read the event again until its object changed.
func TestOwnRecordsAreNotForeign(t *testing.T) {
	for name, inFlight := range map[string]bool{"in flight": true, "in a range that has grown": false} {
		t.Run(name, func(t *testing.T) {
			_, w := newFakeWriters(t)
			client, err := broker.New(w.opts.Broker)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			var hold atomic.Bool
			stored, answer := make(chan struct{}), make(chan struct{})
			w.opts.Partitions = 1
			w.opts.produce = func(ctx context.Context, topic string, p int, batch []byte) (int64, error) {
				at, err := client.Produce(ctx, topic, p, batch)
				if topic == w.opts.Topic && hold.Load() {
					stored <- struct{}{}
					<-answer
				}
				return at, err
			}
			b := w.open()
			web, kept := w.message("web", 1, 0), w.message("kept", 1, 0)
			want := map[event.Key]event.Acked{}
			publish := func(m *event.Message) {
				t.Helper()
				hold.Store(inFlight)
				done := make(chan uint64, 1)
				go func() { done <- w.mustPublish(b, m) }()
				if inFlight {
					<-stored
					w.load(b)
					hold.Store(false)
					answer <- struct{}{}
				}
				a := m.Acked
				a.Position = <-done
				want[m.Key] = a
			}
			publish(kept)
			publish(web)
			publish(w.deletion(web.Key, want[web.Key].Position))
			s, err := b.current()
			if err != nil {
				t.Fatal(err)
			}
			if !inFlight {
				own := s.topics[w.opts.Topic].senders[0]
				own.PutBack(sender.Spans{{From: 1, To: own.End()}})
			}
			got, err := w.acked(b)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range want {
				if got := got[k]; !got.IsSameEvent(want) || got.Foreign {
					t.Errorf("loaded %+v, want %+v", got, want)
				}
			}
			if got := w.unreadFrom(b); got != 0 {
				t.Errorf("the next takeover reads from %d", got)
			}
		})
	}
}

// unreadFrom returns the first unread offset in the recorded marker entry of partition 0, or 0 if there
// is none.
func (w *writers) unreadFrom(b *Bus) int64 {
	w.t.Helper()
	s := w.flushed(b)
	var last entry
	end := endOffsets(w.t.Context(), w.t, w.opts.Broker.Addrs[0], DefaultCheckpointTopic(w.opts.Topic))[0]
	err := b.stored.ReadCheckpoint(w.t.Context(), nil, 0, end, func(r broker.Record, c record.Checkpoint) error {
		if string(r.Key) == s.markerKey(w.opts.Topic, 0) {
			last = c.Entry
		}
		return nil
	})
	if err != nil || last == (entry{}) {
		w.t.Fatalf("the marker is not recorded: %v", err)
	}
	return last.Unread
}
