package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// BenchmarkDecide measures Decide alone, for the states that a resync, a watch and a restart cause.
func BenchmarkDecide(b *testing.B) {
	now := time.Unix(100, 0)
	for name, c := range map[string]struct {
		view  event.View
		acked event.Acked
	}{
		"unchanged":            {event.View{Live: object("A", "10"), Cause: event.CauseWatch, Observed: now}, live("A", "10")},
		"unchanged, projected": {event.View{Live: projected("A", "11", 1), Cause: event.CauseWatch, Observed: now}, projectedAcked("A", "10", 1)},
		"updated":              {event.View{Live: object("A", "11"), Cause: event.CauseWatch, Observed: now}, live("A", "10")},
		"deleted":              {event.View{Tombstones: []event.Tombstone{tombstone("A", "12")}}, live("A", "10")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide(c.view, c.acked, "")
			}
		})
	}
}

// BenchmarkMemory reports the memory of one record without its key, in a cluster of 100,000 objects.
// It measures clean keys whose event is on the bus, and keys that are also dirty. It fails above the
// limits.
func BenchmarkMemory(b *testing.B) {
	for state, limit := range map[string]float64{"clean": 150, "dirty": 350} {
		b.Run(state, func(b *testing.B) {
			for b.Loop() {
				each := memoryOfARecord(100_000, state == "dirty")
				b.ReportMetric(each, "bytes/record")
				if each > limit {
					b.Errorf("%.0f bytes, want at most %.0f", each, limit)
				}
			}
		})
	}
}

func memoryOfARecord(objects int, dirty bool) float64 {
	keys, states := make([]event.Key, objects), make([]*event.Object, objects)
	for n := range keys {
		k := event.Key{Resource: "pods", Namespace: "default", Name: fmt.Sprintf("web-%08d", n)}
		keys[n] = k
		states[n] = &event.Object{Namespace: k.Namespace, Name: k.Name, UID: types.UID(fmt.Sprintf("6f1e4c9a-1b7d-4e8f-9a3c-%012d", n)), ResourceVersion: fmt.Sprint(100_000_000 + n)}
	}
	before := heap()
	l := New()
	c := l.NewTerm()
	for n, k := range keys {
		c.Put(k, event.Acked{UID: string(states[n].UID), ResourceVersion: states[n].ResourceVersion, Position: uint64(n + 1)})
		if dirty {
			l.Observe(k, nil, states[n], event.CauseWatch, false, time.Unix(1, 0))
		}
	}
	each := float64(heap()-before)/float64(objects) - float64(unsafe.Sizeof(event.Key{}))
	runtime.KeepAlive(c)
	runtime.KeepAlive(keys)
	runtime.KeepAlive(states)
	return each
}

// heap returns the size of the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first call may have completed a cycle in progress
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
