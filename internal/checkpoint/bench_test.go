package checkpoint

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/kuberelay/kuberelay/internal/event"
)

// BenchmarkMemory reports the memory of an entry without its key, in a cluster of 100,000
// objects. It fails above the limit.
func BenchmarkMemory(b *testing.B) {
	const objects, limit = 100_000, 150
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
		each := float64(heap()-before)/objects - float64(unsafe.Sizeof(event.Key{}))
		b.ReportMetric(each, "bytes/entry")
		if each > limit {
			b.Errorf("%.0f bytes, want at most %d", each, limit)
		}
		runtime.KeepAlive(c)
		runtime.KeepAlive(keys)
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
