package nats

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver"
)

// benchBus is a bus on a server of its own, reached through TCP.
func benchBus(b *testing.B, mode ContentMode) *Bus {
	b.Helper()
	s, err := natsserver.Start(b.Context(), natsserver.Options{ListenAddr: "127.0.0.1:0", StoreDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Shutdown(context.Background()) })
	bus, err := Connect(b.Context(), Options{URLs: []string{s.ClientURL()}, Cluster: "bench", ContentMode: mode})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { bus.Close() })
	return bus
}

func benchMessage(b *testing.B, name string, version int, data string) *event.Message {
	b.Helper()
	r := event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	uid := types.UID("7f0c7b66-52a5-4b8a-9b5a-" + name)
	m, err := event.Builder{Cluster: "bench"}.Message(event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: r.Key("default", name), Resource: r, Observed: time.Unix(1, 0),
		Object: &event.Object{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name, UID: uid, ResourceVersion: fmt.Sprint(version),
			Body: event.JSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":%q},"data":%q}`, name, uid, data)),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkPublish publishes objects of 8 KB, each with compare-and-set, to as many
// keys as may be in flight.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			bus := benchBus(b, mode)
			const keys = 10_000
			messages := make([]*event.Message, keys)
			data := strings.Repeat("x", 7_600)
			for i := range messages {
				messages[i] = benchMessage(b, fmt.Sprintf("pod-%d", i), i+1, data)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; {
				var wg sync.WaitGroup
				for _, m := range messages[:min(keys, b.N-i)] {
					wg.Add(1)
					bus.Publish(b.Context(), m, func(position uint64, err error) {
						if err != nil {
							b.Error(err)
						}
						m.Expected = position
						wg.Done()
					})
					i++
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkLoad loads the checkpoint of 100,000 objects.
func BenchmarkLoad(b *testing.B) {
	const objects = 100_000
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			bus := benchBus(b, mode)
			for i := range objects {
				bus.Publish(b.Context(), benchMessage(b, fmt.Sprintf("pod-%d", i), i+1, "x"), func(_ uint64, err error) {
					if err != nil {
						b.Error(err)
					}
				})
			}
			if err := bus.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := bus.Load(b.Context(), func(event.Key, event.Acked) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
				if n != objects {
					b.Fatalf("loaded %d objects, want %d", n, objects)
				}
			}
		})
	}
}

// BenchmarkEncode is the cost of a message apart from the bus.
func BenchmarkEncode(b *testing.B) {
	m := benchMessage(b, "pod-1", 1, strings.Repeat("x", 7_600))
	for _, mode := range []ContentMode{Binary, Structured} {
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(mode, m, headers.Get().(*header)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
