package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/record"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// hostile writes records that another user of the brokers can write to the topics of a bus.
type hostile struct {
	t       *testing.T
	opts    Options
	client  *kgo.Client
	batches *broker.Client
}

func newHostile(t *testing.T, o Options) *hostile {
	t.Helper()
	addr := o.Broker.Addrs[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	batches, err := broker.New(broker.Options{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { batches.Close() })
	return &hostile{t, o, client, batches}
}

func (h *hostile) write(topic, key, value string, headers ...kgo.RecordHeader) {
	h.t.Helper()
	r := &kgo.Record{Topic: topic, Key: []byte(key), Headers: headers}
	if value != "" {
		r.Value = []byte(value)
	}
	if err := h.client.ProduceSync(h.t.Context(), r).FirstErr(); err != nil {
		h.t.Fatal(err)
	}
}

// bomb writes a small batch that unpacks to more than the limit.
func (h *hostile) bomb(topic, key string) {
	h.t.Helper()
	var batch recordbatch.Batch
	batch.Append(recordbatch.Record{Key: []byte(key), Value: make([]byte, recordbatch.MaxRecord)})
	encoded, err := batch.Encode(nil, recordbatch.Zstd, recordbatch.Producer{ID: -1, Epoch: -1}, recordbatch.NoSequence)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.batches.Produce(h.t.Context(), topic, 0, encoded); err != nil {
		h.t.Fatal(err)
	}
}

// all writes records of every kind that must be ignored, and returns the number of records for each
// reason.
func (h *hostile) all() map[event.InvalidReason]int {
	h.t.Helper()
	o := h.opts
	checkpoint := DefaultCheckpointTopic(o.Topic)
	object := event.PartitionKey(o.Cluster, event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: "forged"})
	value := func(partition int, offset int64) string {
		return fmt.Sprintf(`{"uid":"x","resourceVersion":"1","topic":%q,"partition":%d,"offset":%d}`, o.Topic, partition, offset)
	}
	h.write(checkpoint, object, value(-1, 0))
	h.write(checkpoint, object, value(1<<16, 0))
	h.write(checkpoint, object, value(0, -1))
	h.write(checkpoint, object, value(0, 1<<48-1))
	h.write(checkpoint, object, "{")
	h.write(checkpoint, string(event.ClusterPartitionKeys(o.Cluster))+"x", value(0, 0))
	h.write(checkpoint, record.StateKey(o.Cluster, o.Topic), fmt.Sprintf(`{"topic":%q,"partitions":-3,"records":-3}`, o.Topic))
	h.write(checkpoint, event.ClaimPartitionKey(o.Cluster), fmt.Sprintf(`{"uid":"x","epoch":60000,"topic":%q,"type":"io.kuberelay.cluster.claimed"}`, o.Topic))
	h.write(checkpoint, event.WriterPartitionKey(o.Cluster, o.Topic, 0), value(-1, 0))
	h.bomb(checkpoint, object)

	header := func(name, value string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: name, Value: []byte(value)}
	}
	h.write(o.Topic, object, "no event")
	h.write(o.Topic, object, "{}", header("ce_id", "i"), header("ce_specversion", "1.0"), header("ce_type", string(event.Created)),
		header("ce_uid", "u"), header("ce_resourceversion", "0"), header("ce_sequence", "65535.0"))
	h.write(o.Topic, object, "{}", header("ce_id", "i"), header("ce_specversion", "1.0"), header("ce_type", string(event.SnapshotStarted)))
	h.write(o.Topic, object, "{}", header("content-type", "application/cloudevents+json"))
	h.bomb(o.Topic, object)
	return map[event.InvalidReason]int{
		event.InvalidPosition: 6, event.InvalidData: 1, event.InvalidKey: 2, event.InvalidEpoch: 1, event.InvalidSize: 2,
		event.InvalidEvent: 2, event.InvalidAttribute: 1,
	}
}

// TestHostileRecords verifies that records that no forwarder writes do not end the process, a
// session or a load. Each record is counted once and costs little memory. In an earlier version,
// one record of the checkpoint topic with a negative partition ended every forwarder of the cluster
// at every start.
func TestHostileRecords(t *testing.T) {
	_, w := newFakeWriters(t)
	registry, logged := prometheus.NewRegistry(), &strings.Builder{}
	w.opts.Invalid = publish.NewInvalid(registry, slog.New(slog.NewTextHandler(logged, nil)))
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	h := newHostile(t, w.opts)
	reasons := h.all()

	s, _ := b.current()
	load := func(b *Bus) { // the first load yields what the takeover found
		for range 2 {
			if err := b.Load(t.Context(), func(event.Key, event.Acked) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	}
	load(b)
	maps.Copy(want, w.publishSome(b, "after-", 2))
	if now, err := b.current(); now != s || err != nil {
		t.Errorf("the session ended: %v", err)
	}
	crash(b)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	next := w.open()
	load(next)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 100<<20 {
		t.Errorf("a takeover and two loads allocated %d MiB", got>>20)
	}
	w.wantLoaded(next, want)
	maps.Copy(want, w.publishSome(next, "later-", 2))
	w.wantLoaded(next, want)

	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(len(families), err)
	}
	for _, m := range families[0].GetMetric() {
		reason := event.InvalidReason(m.GetLabel()[0].GetValue())
		if got := int(m.GetCounter().GetValue()); got != reasons[reason] {
			t.Errorf("%d records are invalid for the reason %s, want %d", got, reason, reasons[reason])
		}
	}
	total := 0
	for _, n := range reasons {
		total += n
	}
	if got := strings.Count(logged.String(), "\n"); got != total {
		t.Errorf("%d lines of log for %d records:\n%s", got, total, logged)
	}
}

// TestForgedMarker verifies that a record with the key of a writer's marker does not stop the
// writer. In an earlier version, such a record counted as a takeover by another writer, and ended
// the process.
func TestForgedMarker(t *testing.T) {
	_, w := newFakeWriters(t)
	b := w.open()
	want := w.publishSome(b, "web-", 3)
	h := newHostile(t, w.opts)
	checkpoint := DefaultCheckpointTopic(w.opts.Topic)
	key := event.WriterPartitionKey(w.opts.Cluster, checkpoint, 0)

	first, _ := b.current()
	h.write(checkpoint, key, "no marker")
	end, err := b.client.End(t.Context(), checkpoint, 0)
	if err != nil {
		t.Fatal(err)
	}
	like := newSession(b, first.producer) // a copy, because only watch may use the field searched of the session itself
	like.checkpoint, like.searched = first.checkpoint, first.checkpoint.markers[0].Offset+1
	if err := b.findOtherWriter(t.Context(), like, end); err != nil {
		t.Errorf("got %v for a record that is not a marker", err)
	}
	h.write(checkpoint, key, "{}", kgo.RecordHeader{Key: "ce_id", Value: []byte("i")}, kgo.RecordHeader{Key: "ce_specversion", Value: []byte("1.0")},
		kgo.RecordHeader{Key: "ce_type", Value: []byte(event.WriterStarted)})
	b.probeSoon()
	await(t, "another session", func() error {
		s, err := b.current()
		if s == first || s == nil {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	w.wantLoaded(b, want)
	maps.Copy(want, w.publishSome(b, "after-", 2))
	w.wantLoaded(b, want)
}

// TestForgedClaim verifies that a forged claim entry with a nonexistent partition does not prevent
// a start.
func TestForgedClaim(t *testing.T) {
	_, w := newFakeWriters(t)
	crash(w.open())
	h := newHostile(t, w.opts)
	h.write(DefaultCheckpointTopic(w.opts.Topic), event.ClaimPartitionKey(w.opts.Cluster),
		fmt.Sprintf(`{"uid":"x","topic":%q,"partition":4711,"type":"io.kuberelay.cluster.claimed"}`, w.opts.Topic))
	asked := make(chan event.Claim, 100)
	w.opts.Admit = func(c event.Claim) error { asked <- c; return nil }
	b := openBus(t, w.opts)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if c := <-asked; !reflect.DeepEqual(c, event.Claim{}) {
		t.Errorf("got %+v", c)
	}
}

// pack writes a record in a separate batch, in which a producer can compress it by a factor of a
// thousand.
func (h *hostile) pack(topic, key, value string, headers ...recordbatch.Header) {
	h.t.Helper()
	var batch recordbatch.Batch
	batch.Append(recordbatch.Record{Key: []byte(key), Value: []byte(value), Headers: headers})
	encoded, err := batch.Encode(nil, recordbatch.Zstd, recordbatch.Producer{ID: -1, Epoch: -1}, recordbatch.NoSequence)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.batches.Produce(h.t.Context(), topic, 0, encoded); err != nil {
		h.t.Fatal(err)
	}
}

// TestLongTexts_Slow verifies that a bus does not keep keys, UIDs, versions and IDs that are longer than
// any API server serves. A compressed record of many MiB is only a few KiB on the wire.
func TestLongTexts_Slow(t *testing.T) {
	_, w := newFakeWriters(t)
	first := w.open()
	want := w.publishSome(first, "web-", 2)
	h := newHostile(t, w.opts)
	checkpoint := DefaultCheckpointTopic(w.opts.Topic)
	long := strings.Repeat("a", 4<<20)
	key := func(name string) string {
		return event.PartitionKey(w.opts.Cluster, event.Key{Group: "apps", Resource: "deployments", Namespace: "default", Name: name})
	}
	entry := func(uid, version string) string {
		return fmt.Sprintf(`{"uid":%q,"resourceVersion":%q,"topic":%q,"partition":0,"offset":0}`, uid, version, w.opts.Topic)
	}
	h.pack(checkpoint, key(long), entry("u", "1"))
	h.pack(checkpoint, key("uid"), entry(long, "1"))
	h.pack(checkpoint, key("version"), entry("u", long))
	h.pack(checkpoint, event.MarkerPartitionKey(w.opts.Cluster, event.Key{Resource: long}.GroupResource()),
		fmt.Sprintf(`{"topic":%q,"type":%q}`, w.opts.Topic, event.SnapshotStarted))
	h.pack(checkpoint, event.MarkerPartitionKey(w.opts.Cluster, event.Key{Resource: "pods"}.GroupResource()),
		fmt.Sprintf(`{"topic":%q,"type":%q,"id":%q}`, w.opts.Topic, event.SnapshotStarted, long))
	header := func(name, value string) recordbatch.Header {
		return recordbatch.Header{Key: name, Value: []byte(value)}
	}
	forged := func(key, uid, version string) {
		h.pack(w.opts.Topic, key, "{}", header("ce_id", "i"), header("ce_specversion", "1.0"), header("ce_type", string(event.Created)),
			header("ce_uid", uid), header("ce_resourceversion", version), header("ce_sequence", "0000."+version))
	}
	forged(key(long), "u", "x")
	forged(key("u"), long, "x")
	forged(key("v"), "u", "x"+long)

	// Publish rejects a key that no load would accept.
	object := publishtest.Object{Name: strings.Repeat("n", event.MaxText), UID: "u"}
	first.Publish(t.Context(), object.Message(t, 0), func(_ uint64, err error) {
		if !errors.Is(err, publish.ErrTooLarge) {
			t.Errorf("published a long key: %v", err)
		}
	})

	var before, after runtime.MemStats
	heap := func(m *runtime.MemStats) {
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(m)
	}
	held := map[event.Key]event.Acked{}
	load := func(b *Bus) {
		clear(held)
		if err := b.Load(t.Context(), func(k event.Key, a event.Acked) error { held[k] = a; return nil }); err != nil {
			t.Error(err)
		}
	}
	heap(&before)
	load(first)
	load(first)
	crash(first)
	next := w.open()
	load(next)
	heap(&after)
	if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > 4<<20 {
		t.Errorf("%d MiB are kept", got>>20)
	}
	if len(held) != len(want) {
		t.Fatalf("%d objects are loaded, want %d", len(held), len(want))
	}
	w.wantLoaded(next, want)
}
