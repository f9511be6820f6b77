package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/sender"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

var controlled = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}

// control returns a claim, the markers of a first sync, and a consistency point.
func (w *writers) control(uid string) []*event.Message {
	w.t.Helper()
	builder := event.Builder{Cluster: w.opts.Cluster}
	claim, err := builder.ClusterClaimed(event.Claim{UID: uid, Epoch: 3, Claimed: time.Now()})
	started, err1 := builder.Marker(event.SnapshotStarted, controlled, uid, 0, time.Now())
	completed, err2 := builder.Marker(event.SnapshotCompleted, controlled, uid, 5, time.Now())
	if err := errors.Join(err, err1, err2); err != nil {
		w.t.Fatal(err)
	}
	return []*event.Message{claim, started, completed, w.point(9)}
}

// wantRemembered fails the test unless the bus has the claim and the marker of a first sync.
func (w *writers) wantRemembered(b *Bus, uid string, marker event.Type) {
	w.t.Helper()
	claim, err := b.LastClaim(w.t.Context())
	if err != nil || claim.UID != uid || claim.Epoch != 3 || claim.IsRow {
		w.t.Errorf("got the claim %+v, %v, want one of %s", claim, err, uid)
	}
	if typ, _, err := b.LastMarker(w.t.Context(), controlled.GroupResource()); err != nil || typ != marker {
		w.t.Errorf("got the marker %q, %v, want %q", typ, err, marker)
	}
}

// rows returns the keys whose last record in the topic has a value, sorted.
func (w *writers) rows() (keys []string) {
	w.t.Helper()
	last := map[string]bool{}
	for _, r := range readTopic(w.t, w.opts.Broker.Addrs[0], w.opts.Topic) {
		last[string(r.Key)] = r.Value != nil
	}
	for key, isRow := range last {
		if isRow {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// TestCompactedControlRecords verifies sessions after compaction has removed the writer's markers,
// the claim, the markers of the first sync, and the consistency points from the event topic. The
// current session is renewed and writes another marker. Each later session knows the claim and the
// objects. It also knows the first sync, unless it has to read the whole partition. Another cluster
// is not admitted.
func TestCompactedControlRecords(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{Properties: map[string]string{"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "50"}})
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprint("recorded ", recorded), func(t *testing.T) {
			w := newWriters(t, 1)
			w.opts.Broker.Addrs = []string{broker.Addr()}
			err := broker.CreateTopic(t.Context(), w.opts.Topic, 1, map[string]string{
				"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0",
			})
			if err != nil {
				t.Fatal(err)
			}
			b := w.open()
			for _, m := range w.control("uid-1") {
				w.mustPublish(b, m)
			}
			want := w.publishSome(b, "web-", 3)
			first := w.flushed(b)
			tick := w.message("tick", 1, 0)
			n := 1
			want[tick.Key] = w.mustPublish(b, tick)
			await(t, "the control records are compacted", func() error {
				n++
				want[tick.Key] = w.mustPublish(b, w.messageOf(tick.Key, n, want[tick.Key])) // rolls a segment
				for _, r := range readTopic(t, broker.Addr(), w.opts.Topic) {
					if isControl(r) {
						return fmt.Errorf("%s is still in the topic", r.Key)
					}
				}
				return nil
			})
			if err := b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err == nil {
				w.wantLoaded(b, want) // yields what the takeover found; the next load reads the topics
				err = b.Load(t.Context(), func(event.Key, event.Acked) error { return nil })
				if !errors.Is(err, errRenew) {
					t.Errorf("loaded without the marker of the session: %v, want %v", err, errRenew)
				}
			}
			awaitAnother(t, b, first)
			marker := event.SnapshotCompleted
			for range 3 {
				w.wantLoaded(b, want)
				w.wantRemembered(b, "uid-1", marker)
				crash(b)
				if !recorded { // the next takeover reads the whole partition
					w.forgetMarker()
					marker = ""
				}
				b = w.open()
			}
			w.wantLoaded(b, want)
			crash(b)
			refused := errors.New("refused")
			w.opts.Admit = func(c event.Claim) error {
				if c.UID != "uid-1" {
					t.Errorf("asked to admit to %+v, want the claim of uid-1", c)
				}
				return refused
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			other := openBus(t, w.opts)
			await(t, "the claim refuses another cluster", func() error {
				if err := other.Ready(); !errors.Is(err, refused) {
					return fmt.Errorf("it says %w", err)
				}
				return ctx.Err()
			})
		})
	}
}

// forgetMarker removes the entry of the writer's marker from the checkpoint topic, as if the
// previous writer had been killed before it recorded the marker.
func (w *writers) forgetMarker() {
	w.t.Helper()
	h := newHostile(w.t, w.opts)
	h.write(DefaultCheckpointTopic(w.opts.Topic), event.WriterPartitionKey(w.opts.Cluster, w.opts.Topic, 0), "")
}

// TestControlRecordsOfAnEarlierRelease verifies how a bus handles the control records of an earlier
// release, which have values and are rows in tables. The claim keeps its owner and reports that it
// is a row, and the markers of the first sync are ignored. After the bus publishes the control
// records again, they are no longer rows.
func TestControlRecordsOfAnEarlierRelease(t *testing.T) {
	for _, mode := range []ContentMode{Binary, Structured} {
		for _, recorded := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, " recorded ", recorded), func(t *testing.T) {
				w := newWriters(t, 1)
				w.opts.ContentMode = mode
				b := w.open()
				want := w.publishSome(b, "web-", 2)
				s := w.flushed(b)
				for _, m := range w.control("uid-1")[:3] {
					w.asBefore(s, m, recorded)
				}
				marker, err := event.Builder{Cluster: w.opts.Cluster}.WriterStarted("w", "s", w.opts.Topic, 0, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				w.asBefore(s, marker, recorded)
				w.flushed(b)
				crash(b)
				var asked event.Claim
				w.opts.Admit = func(c event.Claim) error { asked = c; return nil }
				b = w.open()
				if recorded && (asked.UID != "uid-1" || !asked.IsRow) {
					t.Errorf("asked to admit to %+v, want the claim of uid-1", asked)
				}
				claim, err := b.LastClaim(t.Context())
				if err != nil || claim.UID != "uid-1" || claim.Epoch != 3 || !claim.IsRow {
					t.Errorf("got the claim %+v, %v", claim, err)
				}
				if typ, id, err := b.LastMarker(t.Context(), controlled.GroupResource()); typ != "" || id != "" || err != nil {
					t.Errorf("got the marker %s %s, %v, want none", typ, id, err)
				}
				for _, m := range w.control("uid-1") {
					w.mustPublish(b, m)
				}
				var keys []string
				for k := range want {
					keys = append(keys, event.PartitionKey(w.opts.Cluster, k))
				}
				slices.Sort(keys)
				if got := w.rows(); !slices.Equal(got, keys) {
					t.Errorf("rows %q, want %q", got, keys)
				}
				for range 2 {
					w.wantRemembered(b, "uid-1", event.SnapshotCompleted)
					w.wantLoaded(b, want)
					crash(b)
					b = w.open()
				}
			})
		}
	}
}

// asBefore writes a marker with a value, as earlier releases do. If recorded is true, it also
// writes the marker's entry.
func (w *writers) asBefore(s *session, m *event.Message, recorded bool) {
	w.t.Helper()
	r, err := binding.Encode(m, w.opts.ContentMode == Structured)
	if err != nil {
		w.t.Fatal(err)
	}
	type result struct {
		offset int64
		err    error
	}
	stored := make(chan result, 1)
	s.topics[w.opts.Topic].senders[0].Add(&sender.Item{Record: r, Done: func(offset int64, err error) { stored <- result{offset, err} }})
	at := <-stored
	if at.err != nil {
		w.t.Fatal(at.err)
	}
	if recorded {
		e := entry{Topic: w.opts.Topic, Offset: at.offset, Type: event.Type(m.Attribute("type")), ID: m.ID, UID: m.Acked.UID, Epoch: m.Acked.Epoch, Time: time.Now().Unix()}
		s.recorder.Put(r.Key, e)
	}
}
