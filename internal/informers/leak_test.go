package informers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// identities is a metrics provider that records client-go's identities of informers.
type identities struct {
	mu  sync.Mutex
	all []cache.InformerNameAndResource
}

type noMetric struct{}

func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}

func (i *identities) note(id cache.InformerNameAndResource) noMetric {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, id)
	return noMetric{}
}

func (i *identities) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return i.note(id)
}

func (i *identities) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return i.note(id)
}

func (i *identities) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return i.note(id)
}

// reserved returns the number of identities that client-go has not released.
func (i *identities) reserved() (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range i.all {
		if id.Reserved() {
			n++
		}
	}
	return n
}

// The test creates and deletes two hundred definitions, twenty at a time. Each informer has about
// ten goroutines and holds an object of heavy bytes. The test fails if the goroutines of more than
// two informers are left, or the memory of more than one informer in four. No client-go names and no
// metric series may be left.
const (
	leakGroup       = "leak.example.com"
	rounds, atOnce  = 10, 20
	heavy           = 40 << 10
	goroutineMargin = 20
	heapMargin      = rounds * atOnce * heavy / 4
)

type footprint struct {
	goroutines, identities, series int
	heap                           uint64
}

func (r *running) footprint(t *testing.T, ids *identities) footprint {
	t.Helper()
	// Run the GC twice, because memory that a finalizer releases is freed only by the next cycle.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	families, err := r.config.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	f := footprint{goroutines: runtime.NumGoroutine(), identities: ids.reserved(), heap: m.HeapAlloc}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.Contains(label.GetValue(), leakGroup) {
					f.series++
				}
			}
		}
	}
	return f
}

// TestNothingIsLeftOfWhatIsStopped_Slow verifies that two hundred definitions that are created and
// deleted, each with one object, leave no goroutines, memory, client-go names or metric series.
func TestNothingIsLeftOfWhatIsStopped_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	ids := &identities{}
	r := start(t, cp.Config(), Config{
		Selection: discovery.Selection{Include: []string{"configmaps", "*." + leakGroup}}, InformerMetrics: ids,
	})
	r.awaitSynced(t, configMaps.GroupResource())
	client, _ := clients(t, cp.Config())
	var all []schema.GroupResource
	round := func(n int) {
		grs := defineMany(t, cp, leakGroup, n*atOnce, atOnce)
		all = append(all, grs...)
		for _, gr := range grs {
			r.awaitSynced(t, gr)
			key := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: namespace, Name: "one"}
			o, err := client.Resource(gr.WithVersion("v1")).Namespace(namespace).Create(t.Context(), heavyObject(gr), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.awaitView(t, gr.String(), key, o)
		}
		if n == 1 {
			now := r.footprint(t, ids)
			t.Logf("with %d informers: %+v", atOnce, now)
			if now.series == 0 || now.identities == 0 {
				t.Errorf("got %+v, want series and identities that the test can see disappear", now)
			}
		}
		undefineMany(t, cp, grs)
		for _, gr := range grs {
			r.awaitStopped(t, gr)
			r.await(t, "it is compared", func() bool { return r.compare[gr] > 1 })
			key := event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: namespace, Name: "one"}
			r.Settle(key, event.Acked{}) // the bus never had the object
			if _, err := r.reconcile(t, gr); err != nil {
				t.Error(err)
			}
		}
		r.forget(leakGroup)
	}
	round(0) // warm up: connections, pools and other one-time allocations
	before := r.footprint(t, ids)
	for n := 1; n <= rounds; n++ {
		round(n)
	}
	var after footprint
	defer func() {
		if t.Failed() {
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
		}
	}()
	poll.Try(t, "nothing is left", func(context.Context) error {
		after = r.footprint(t, ids)
		switch {
		case after.goroutines > before.goroutines+goroutineMargin:
			return fmt.Errorf("goroutines: from %d to %d", before.goroutines, after.goroutines)
		case after.heap > before.heap+heapMargin:
			return fmt.Errorf("heap: from %d KiB to %d KiB", before.heap>>10, after.heap>>10)
		case after.identities > before.identities:
			return fmt.Errorf("client-go's names: from %d to %d", before.identities, after.identities)
		case after.series > before.series:
			return fmt.Errorf("series: from %d to %d", before.series, after.series)
		}
		return nil
	})
	t.Logf("before %d definitions: %+v; after: %+v", rounds*atOnce, before, after)
	for _, gr := range all {
		if k := r.ledger.DirtyOf(gr); len(k) > 0 {
			t.Errorf("%v are dirty", k)
		}
	}
}

// heavyObject returns an object whose data cannot be compressed.
func heavyObject(gr schema.GroupResource) *unstructured.Unstructured {
	random := make([]byte, heavy)
	_, _ = rand.Read(random)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gr.Group + "/v1", "kind": "W" + gr.Resource[1:],
		"metadata": map[string]any{"name": "one"}, "spec": map[string]any{"text": base64.StdEncoding.EncodeToString(random)},
	}}
}

// forget drops the test's own records about a group.
func (r *running) forget(group string) {
	r.change(func() {
		ofKey := func(k event.Key) bool { return k.Group == group }
		maps.DeleteFunc(r.views, func(k event.Key, _ event.View) bool { return ofKey(k) })
		maps.DeleteFunc(r.enqueued, func(k event.Key, _ int) bool { return ofKey(k) })
		maps.DeleteFunc(r.buried, func(k event.Key, _ bool) bool { return ofKey(k) })
		maps.DeleteFunc(r.compare, func(gr schema.GroupResource, _ int) bool { return gr.Group == group })
		maps.DeleteFunc(r.completed, func(gr schema.GroupResource, _ int) bool { return gr.Group == group })
		maps.DeleteFunc(r.started, func(gr schema.GroupResource, _ bool) bool { return gr.Group == group })
	})
}
