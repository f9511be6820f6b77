package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// benchOptions returns the options of a bus on the shared broker with its own topics.
func benchOptions(b *testing.B) Options {
	b.Helper()
	broker := kafkabrokertest.Shared(b)
	topic := kafkabrokertest.Topic(b, broker, "bench", 3, map[string]string{"cleanup.policy": "compact"})
	o := testOptions(broker.Addr())
	o.Topic, o.TransactionalID = topic, topic
	return o
}

func openReady(b *testing.B, o Options) *Bus {
	b.Helper()
	bus := openBus(b, o)
	if err := bus.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	return bus
}

// BenchmarkPublish publishes events of 10,000 objects of 7.9 KB, one event of each object at a
// time. It uses Bus.Publish and then kafka-go's asynchronous Writer. The Writer keeps no
// checkpoint, checks nothing, and may repeat messages. It receives encoded messages, a thousand per
// call. The reported rates are those of the median round, and ratio is the rate of Bus.Publish
// divided by the rate of the Writer.
func BenchmarkPublish(b *testing.B) {
	for _, codec := range []recordbatch.Compression{recordbatch.Zstd, recordbatch.LZ4, recordbatch.None} {
		b.Run(codec.String(), func(b *testing.B) {
			messages := benchMessages(b, 10_000, func(i int) []byte { return pod(b, i, 45) })
			o := benchOptions(b)
			o.Compression = codec
			bus := openReady(b, o)
			writer := newBareWriter(b, o, bus, messages)
			publishAll(b, bus, messages) // warms up, so that both clients know the partition leaders
			writer.writeAll(b)
			var ours, bare []time.Duration
			for b.Loop() {
				begun := time.Now()
				publishAll(b, bus, messages)
				ours = append(ours, time.Since(begun))
				begun = time.Now()
				writer.writeAll(b)
				bare = append(bare, time.Since(begun))
			}
			ourMedian, bareMedian := median(ours).Seconds(), median(bare).Seconds()
			b.ReportMetric(float64(len(messages))/ourMedian, "events/s")
			b.ReportMetric(float64(len(messages))/bareMedian, "bare-events/s")
			b.ReportMetric(bareMedian/ourMedian, "ratio")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// publishAll publishes all messages, and waits for their acknowledgements.
func publishAll(b *testing.B, bus *Bus, messages []*event.Message) {
	b.Helper()
	var all sync.WaitGroup
	for _, m := range messages {
		all.Add(1)
		bus.Publish(b.Context(), m, func(position uint64, err error) {
			if err != nil {
				b.Error(err)
			}
			m.Expected = position
			all.Done()
		})
	}
	all.Wait()
}

// bareWriter is kafka-go's Writer with the messages that it writes.
type bareWriter struct {
	writer   *kafkago.Writer
	messages []kafkago.Message
	pending  sync.WaitGroup
}

// newBareWriter returns a writer for a topic like that of the bus. It writes the same records as
// the bus.
func newBareWriter(b *testing.B, o Options, bus *Bus, messages []*event.Message) *bareWriter {
	b.Helper()
	w := &bareWriter{}
	for _, m := range messages {
		r, err := bus.encode(m)
		if err != nil {
			b.Fatal(err)
		}
		w.messages = append(w.messages, kafkago.Message{Key: r.Key, Value: r.Value, Headers: r.Headers, Time: r.Timestamp})
	}
	transport := &kafkago.Transport{} // an existing transport may not know the topic yet
	b.Cleanup(transport.CloseIdleConnections)
	w.writer = &kafkago.Writer{
		Transport: transport,
		Addr:      kafkago.TCP(o.Broker.Addrs...), Topic: benchOptions(b).Topic, Balancer: kafkago.Murmur2Balancer{Consistent: true},
		RequiredAcks: kafkago.RequireAll, Compression: kafkago.Compression(o.Compression), Async: true,
		BatchSize: 1_000, BatchBytes: 1 << 20, BatchTimeout: 5 * time.Millisecond,
		Completion: func(messages []kafkago.Message, err error) {
			if err != nil {
				b.Error(err)
			}
			w.pending.Add(-len(messages))
		},
	}
	b.Cleanup(func() { w.writer.Close() })
	return w
}

// writeAll writes all messages, and waits for their acknowledgements.
func (w *bareWriter) writeAll(b *testing.B) {
	b.Helper()
	w.pending.Add(len(w.messages))
	for rest := w.messages; len(rest) > 0; {
		n := min(1_000, len(rest))
		if err := w.writer.WriteMessages(b.Context(), rest[:n]...); err != nil {
			b.Fatal(err)
		}
		rest = rest[n:]
	}
	w.pending.Wait()
}

// BenchmarkLoad loads 100,000 objects from the checkpoint topic. takeover-ms is the time from Open
// to Ready. load-ms is the time of the first Load, and reload-ms is the time of the second Load,
// which reads the topic again.
func BenchmarkLoad(b *testing.B) {
	const objects = 100_000
	o := benchOptions(b)
	bus := openReady(b, o)
	publishAll(b, bus, benchMessages(b, objects, func(i int) []byte { return pod(b, i, 0) }))
	if err := bus.Close(); err != nil {
		b.Fatal(err)
	}
	var takeover, load, reload time.Duration
	for b.Loop() {
		begun := time.Now()
		bus := openReady(b, o)
		takeover += time.Since(begun)
		for _, took := range []*time.Duration{&load, &reload} {
			begun, n := time.Now(), 0
			if err := bus.Load(b.Context(), func(event.Key, event.Acked) error { n++; return nil }); err != nil || n < objects {
				b.Fatalf("loaded %d objects, want %d: %v", n, objects, err)
			}
			*took += time.Since(begun)
		}
		if err := bus.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for unit, sum := range map[string]time.Duration{"takeover-ms": takeover, "load-ms": load, "reload-ms": reload} {
		b.ReportMetric(sum.Seconds()*1e3/float64(b.N), unit)
	}
}

// benchMessages returns one event for each of n pods.
func benchMessages(b *testing.B, n int, body func(i int) []byte) []*event.Message {
	b.Helper()
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	messages := make([]*event.Message, n)
	var errs error
	for i := range messages {
		name := podName(i)
		m, err := event.Builder{Cluster: "test.cluster"}.Message(event.Change{
			Type: event.Updated, Cause: event.CauseWatch, Key: r.Key("default", name), Resource: r, Observed: time.Unix(1, 0),
			Object: &event.Object{
				APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name, UID: podUID(i), ResourceVersion: fmt.Sprint(1_000_000 + i), Body: event.JSON(body(i)),
			},
		})
		messages[i], errs = m, errors.Join(errs, err)
	}
	if errs != nil {
		b.Fatal(errs)
	}
	return messages
}

func podName(i int) string { return fmt.Sprintf("web-7d4b9c6f5d-%05d", i) }

func podUID(i int) types.UID {
	random := rand.New(rand.NewPCG(1, uint64(i)))
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.Uint32()>>16, random.Uint32()>>20, random.Uint32()>>20, random.Uint64()>>16))
}

// pod returns a pod of about 700 bytes, plus 160 bytes for each setting.
func pod(b *testing.B, i, settings int) []byte {
	b.Helper()
	type object = map[string]any
	random := rand.New(rand.NewPCG(2, uint64(i)))
	var env, conditions []object
	for n := range settings {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", n), "value": fmt.Sprintf("%x", random.Uint64())})
		conditions = append(conditions, object{
			"type": fmt.Sprintf("Condition%d", n%4), "status": "True", "reason": "MinimumReplicasAvailable",
			"lastTransitionTime": time.Unix(int64(random.Uint32()), 0).UTC().Format(time.RFC3339),
		})
	}
	body, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": podName(i), "namespace": "default", "uid": podUID(i), "resourceVersion": fmt.Sprint(1_000_000 + i),
			"creationTimestamp": "2026-03-04T05:06:07Z", "labels": object{"app": "web", "pod-template-hash": "7d4b9c6f5d"},
		},
		"spec": object{
			"nodeName": fmt.Sprintf("node-%d", random.IntN(100)), "serviceAccountName": "default",
			"containers": []object{{"name": "web", "image": "registry.example.com/web:1.2.3", "env": env}},
		},
		"status": object{"phase": "Running", "podIP": fmt.Sprintf("10.0.%d.%d", random.IntN(256), random.IntN(256)), "conditions": conditions},
	})
	if err != nil {
		b.Fatal(err)
	}
	return body
}
