package verify

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/readertest"
)

const kafkaPartitions = 3

// onKafka replaces the bus of a world with a new Kafka topic.
func onKafka(w *world) *world {
	w.t.Helper()
	b := kafkabrokertest.Shared(w.t)
	w.topic = readertest.NewTopic(w.t, b, "verify", kafkaPartitions, nil)
	w.opts.Kafka = &reader.Options{Broker: broker.Options{Addrs: []string{b.Addr()}}, Topic: w.topic.Topic, Cluster: clusterName}
	return w
}

// writers publishes the markers of a writer to all partitions, as on a real bus.
func (w *world) writers(session string) {
	w.t.Helper()
	for p := range kafkaPartitions {
		m, err := w.builder.WriterStarted("test", session, w.topic.Topic, p, time.Now())
		if err != nil {
			w.t.Fatal(err)
		}
		w.topic.PutAt(p, m)
	}
}

func (w *world) key(name string) []byte {
	return []byte(event.PartitionKey(clusterName, configMaps.Key(w.namespace, name)))
}

func (w *world) partition(name string) int { return binding.Partition(w.key(name), kafkaPartitions) }

// touched changes an object and returns the event of its new version.
func (w *world) touched(u *unstructured.Unstructured) *event.Message {
	w.t.Helper()
	m, err := w.message(event.Updated, configMaps, w.touch(u))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func TestKafkaClean(t *testing.T) {
	for _, structured := range []bool{false, true} {
		w := onKafka(newWorld(t))
		w.topic.Structured, w.topic.Valued = structured, structured
		w.writers("one")
		w.create(configMaps, "a", map[string]any{"data": map[string]any{"k": "<&>\u2028"}})
		b := w.create(configMaps, "b", nil)
		gone := w.create(configMaps, "gone", nil)
		w.sync(configMaps)
		w.writers("two")
		w.publish(event.Updated, configMaps, w.touch(b))
		w.delete(configMaps, "gone")
		w.publish(event.Deleted, configMaps, gone)
		w.topic.Tombstone(clusterName, configMaps.Key(w.namespace, "gone"))
		want(t, w.found())
		r, err := w.verify()
		if err != nil || !r.Clean() || r.Objects != 2 || r.Messages != 2*kafkaPartitions+6 || len(r.Partitions) != kafkaPartitions {
			t.Errorf("got %+v, %v", r, err)
		}
		if got := r.Summary(); !strings.Contains(got, "0 problems of order or form in 12 messages; 3 partitions read to the end") {
			t.Errorf("got %q", got)
		}
	}
}

// TestKafkaPlanted_Slow verifies that verify finds problems that only Kafka can have, and some that any
// bus can have. Of the objects a and b, only b has a problem. After a consistency point, verify
// must find the same problems without waiting for the settle time.
func TestKafkaPlanted_Slow(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(w *world, b *unstructured.Unstructured)
		want  []string
	}{
		{"never published", func(*world, *unstructured.Unstructured) {}, []string{"missing b: the bus has no event of it"}},
		{"not updated", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.touch(b)
		}, []string{"stale b: the bus is behind the cluster"}},
		{"not deleted", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
		}, []string{"extra b: uid"}},
		{"other data", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { t["data"] = tree{"k": "other"} }))
		}, []string{"different b: same version, other data: data (only on the bus)"}},
		{"a tombstone of what exists", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.topic.Tombstone(clusterName, configMaps.Key(w.namespace, "b"))
		}, []string{"missing b: the bus has no event of it", "misordered b: a tombstone follows"}},
		{"an event twice", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.acked = map[event.Key]event.Acked{}
			w.publish(event.Created, configMaps, b)
		}, []string{"misordered b: id "}},
		{"a state left out", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Updated, configMaps, w.touch(b), previous("7"))
		}, []string{`misordered b: previousversion is "7"`}},
		{"the first state left out", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Updated, configMaps, b)
		}, []string{"misordered b: the first event of uid"}},
		{"the first state lost", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Updated, configMaps, b, previous("7"))
		}, nil},
		{"two partitions", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			m := w.touched(b)
			w.topic.PutAt((w.partition("b")+1)%kafkaPartitions, m)
		}, []string{"misordered b: its events are in the partitions"}},
		{"no event", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.topic.PutRecord(w.partition("b"), recordbatch.Record{Key: w.key("b"), Value: []byte("x")})
		}, []string{"malformed b: a record with the key"}},
		{"an impossible epoch after the last event", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			m, err := w.message(event.Updated, configMaps, b)
			if err != nil {
				w.t.Fatal(err)
			}
			r, err := binding.Encode(m, false)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range r.Headers {
				if r.Headers[i].Key == "ce_sequence" {
					r.Headers[i].Value = []byte("65535.1")
				}
			}
			w.topic.PutRecord(w.partition("b"), r)
		}, []string{"malformed b: a record with the key"}},
		{"a batch that unpacks to too much", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.topic.PutRecord(w.partition("b"), recordbatch.Record{Key: w.key("b"), Value: make([]byte, recordbatch.MaxRecord)})
			w.publish(event.Updated, configMaps, w.touch(b))
		}, []string{"malformed : a record is not an event of Kuberelay: the records up to offset"}},
		{"under another key", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			r, err := binding.Encode(w.touched(b), false)
			if err != nil {
				w.t.Fatal(err)
			}
			r.Key = w.key("b2")
			w.topic.PutRecord(w.partition("b2"), r)
		}, []string{
			"stale b: the bus is behind the cluster", "extra b2: uid", `malformed b2: metadata.name of the data is "b"`, `malformed b2: name is "b"`,
			"malformed b2: partitionkey is", "malformed b2: the attribute subject is",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := onKafka(newWorld(t))
			w.writers("one")
			w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
			tc.plant(w, w.create(configMaps, "b", nil))
			want(t, w.found(), tc.want...)
			w.atPoint()
			want(t, w.found(), tc.want...)
		})
	}
}

// TestKafkaEventInAnotherTopic verifies that an event in the topic of another resource is only malformed.
// Before the fix, the data of the object's last event was not read, and the object counted as different.
func TestKafkaEventInAnotherTopic(t *testing.T) {
	w, b := newWorld(t), kafkabrokertest.Shared(t)
	base := kafkabrokertest.TopicName(t.Name())
	topic := func(name string) *readertest.Writer {
		if err := b.CreateTopic(t.Context(), base+name, 1, nil); err != nil {
			t.Fatal(err)
		}
		return readertest.New(t, b.Addr(), base+name, 1)
	}
	other := topic(".apps.deployments")
	w.topic = topic(".core.configmaps")
	w.opts.Kafka = &reader.Options{Broker: broker.Options{Addrs: []string{b.Addr()}}, Topic: base + ".{group}.{resource}", Cluster: clusterName}
	a := w.create(configMaps, "a", nil)
	w.publish(event.Created, configMaps, a)
	m, err := w.message(event.Created, configMaps, a)
	if err != nil {
		t.Fatal(err)
	}
	other.Put(m)
	other.Put(m)
	want(t, w.found(), "malformed : a record with the key", "malformed : a record with the key")
}
