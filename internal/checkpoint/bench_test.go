package checkpoint

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

const objects = 100_000

// heap is the live heap in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		keys := make([]event.Key, objects)
		for n := range keys {
			keys[n] = event.Key{Resource: "pods", Namespace: "default", Name: fmt.Sprintf("web-%08d", n)}
		}
		before := heap()
		c := New()
		for n, k := range keys {
			c.Put(k, event.Acked{
				UID: fmt.Sprintf("6f1e4c9a-1b7d-4e8f-9a3c-%012d", n), ResourceVersion: fmt.Sprint(100_000_000 + n), Position: uint64(n + 1),
			})
		}
		after := heap()
		b.ReportMetric(float64(after-before)/objects, "bytes/entry")
		runtime.KeepAlive(c)
		runtime.KeepAlive(keys)
	}
}
