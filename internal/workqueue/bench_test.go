package workqueue

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unique"

	"github.com/kuberelay/kuberelay/internal/event"
)

// BenchmarkQueue takes each key through the queue, from Add to the completion of its
// handler, with keys of one namespace and of a thousand namespaces.
func BenchmarkQueue(b *testing.B) {
	for _, namespaces := range []int{1, 1000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			const limit, keys = 512, 10_000
			all := make([]event.Key, keys)
			for n := range all {
				all[n] = event.Key{Resource: "pods", Namespace: fmt.Sprint("tenant-", n%namespaces), Name: fmt.Sprint("web-", n)}
			}
			q := New(Config{Workers: 4, MaxInFlight: Limit{Keys: limit, Bytes: 16 << 20}, MaxLowPriorityInFlight: Limit{Keys: limit / 2}, BaseDelay: time.Second, MaxDelay: time.Second})
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			answers := make(chan func(Result), limit) // the bus, which completes one key after another
			finished := make(chan struct{}, keys)
			go func() {
				defer close(ended)
				q.Run(ctx, func(_ context.Context, k event.Key, done func(Result)) {
					q.Hold(k, 2000)
					answers <- done
				})
			}()
			go func() {
				for done := range answers {
					done(Result{})
					finished <- struct{}{}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				for _, k := range all {
					q.Add(k)
				}
				for range all {
					<-finished
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
			cancel()
			<-ended
			close(answers)
		})
	}
}

// BenchmarkPriorityQueue takes each key through the priorityQueue alone, in one goroutine,
// with ten keys queued and ten held.
func BenchmarkPriorityQueue(b *testing.B) {
	for _, namespaces := range []int{1, 1000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			all := make([]item, 10_000)
			for n := range all {
				all[n] = unique.Make(event.Key{Resource: "pods", Namespace: fmt.Sprint("tenant-", n%namespaces), Name: fmt.Sprint("web-", n)})
			}
			q := newPriorityQueue(Limit{Keys: 512, Bytes: 16 << 20}, Limit{Keys: 256}, 0)
			var held []item
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				key := all[n%len(all)]
				n++
				q.expect(key, normal)
				q.Push(key)
				if n < 10 {
					continue
				}
				q.await()
				key = q.Pop()
				q.holdBytes(key, 2000)
				if held = append(held, key); len(held) > 10 {
					complete(q, held[0])
					held = held[1:]
				}
			}
		})
	}
}

// BenchmarkMemory reports the memory of a queued key, apart from the key.
func BenchmarkMemory(b *testing.B) {
	for _, namespaces := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			const keys = 100_000
			all := make([]event.Key, keys)
			for n := range all {
				all[n] = event.Key{Resource: "pods", Namespace: fmt.Sprint("tenant-", n%namespaces), Name: fmt.Sprint("web-", n)}
			}
			for b.Loop() {
				before := heap()
				q := testQueue()
				for _, k := range all {
					q.Add(k)
				}
				b.ReportMetric(float64(heap()-before)/keys, "bytes/key")
				q.queue.ShutDown()
			}
		})
	}
}

// heap returns the size of the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first call may have completed a cycle in progress
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
