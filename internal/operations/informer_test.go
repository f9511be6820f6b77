package operations

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// listWatch returns an empty list at version 40 and then sends the given watch events.
type listWatch struct {
	cache.ListWatch
	events *watch.FakeWatcher
}

// IsWatchListSemanticsUnSupported makes the reflector use a list instead of a streaming watch.
func (*listWatch) IsWatchListSemanticsUnSupported() bool { return true }

func newListWatch() *listWatch {
	lw := &listWatch{events: watch.NewFakeWithChanSize(10, false)}
	lw.ListWithContextFunc = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		list := &unstructured.UnstructuredList{}
		list.SetResourceVersion("40")
		return list, nil
	}
	lw.WatchFuncWithContext = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return lw.events, nil }
	return lw
}

func (lw *listWatch) add(version string) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	o.SetNamespace("default")
	o.SetName("web-" + version)
	o.SetResourceVersion(version)
	lw.events.Add(o)
}

var identities atomic.Int64

func identify(t *testing.T, gvr schema.GroupVersionResource) (id cache.InformerNameAndResource, release func()) {
	t.Helper()
	name, err := cache.NewInformerName(fmt.Sprintf("%s-%d", t.Name(), identities.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(name.Release)
	return name.WithResource(gvr), name.Release
}

func TestInformerMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	provider := InformerMetrics(r)
	id, release := identify(t, deployments)
	gather := func() (queued, version float64, known bool) {
		q, v := provider.(*informerMetrics).byResource()
		queued, known = q["deployments.apps"]
		return queued, v["deployments.apps"], known
	}
	synctest.Test(t, func(t *testing.T) {
		lw, proceed := newListWatch(), make(chan struct{})
		informer := cache.NewSharedIndexInformerWithOptions(lw, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
			Identifier: id, InformerMetricsProvider: provider,
			Indexers: cache.Indexers{"slow": func(any) ([]string, error) { <-proceed; return nil, nil }},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); informer.RunWithContext(ctx) }()
		synctest.Wait()
		if queued, version, known := gather(); !known || queued != 0 || version != 40 {
			t.Errorf("after the list: %v queued, version %v, known %v; want 0 at version 40", queued, version, known)
		}

		lw.add("41")
		synctest.Wait() // the indexer is busy with version 41
		lw.add("42")
		lw.add("43")
		synctest.Wait()
		if queued, version, _ := gather(); queued != 2 || version != 40 {
			t.Errorf("while the indexer is busy: %v queued, version %v; want 2 at version 40", queued, version)
		}
		time.Sleep(4 * time.Second)
		close(proceed)
		synctest.Wait()
		if queued, version, _ := gather(); queued != 0 || version != 43 {
			t.Errorf("after the watch: %v queued, version %v; want 0 at version 43", queued, version)
		}
		cancel()
		<-ended
	})

	families := scrape(t, r)
	if got := series(families, "informer_store_resource_version"); len(got) != 1 || got["resource=deployments.apps"].GetGauge().GetValue() != 43 {
		t.Errorf("informer_store_resource_version: got %v, want 43 of deployments.apps", got)
	}
	if got := series(families, "informer_queued_items"); len(got) != 1 || got["resource=deployments.apps"] == nil {
		t.Errorf("informer_queued_items: got %v, want deployments.apps", got)
	}
	got := series(families, "informer_processing_latency_seconds")["resource=deployments.apps"].GetHistogram()
	if got.GetSampleSum() != 4 {
		t.Errorf("informer_processing_latency_seconds: %v in all, want 4", got.GetSampleSum())
	}

	release()
	scrape(t, r)
	families = scrape(t, r) // the previous scrape may have read the histogram before it forgot the informer
	for _, name := range []string{"informer_queued_items", "informer_store_resource_version", "informer_processing_latency_seconds"} {
		if got := series(families, name); len(got) != 0 {
			t.Errorf("%s: got %v after the informer was released, want nothing", name, got)
		}
	}
}

func TestInformersOfOneResourceAreTakenTogether(t *testing.T) {
	r := prometheus.NewRegistry()
	one, releaseOne := identify(t, deployments)
	other, _ := identify(t, deployments)
	unset, _ := identify(t, deployments)
	provider := InformerMetrics(r)
	provider.NewQueuedItemMetric(one).Set(3)
	provider.NewStoreResourceVersionMetric(one).Set(50)
	provider = InformerMetrics(r) // the same registry, so the same gauges
	provider.NewQueuedItemMetric(other).Set(4)
	provider.NewStoreResourceVersionMetric(other).Set(60)
	provider.NewQueuedItemMetric(unset)
	provider.NewStoreResourceVersionMetric(unset)

	check := func(wantQueued, wantVersion float64) {
		t.Helper()
		families := scrape(t, r)
		for name, want := range map[string]float64{"informer_queued_items": wantQueued, "informer_store_resource_version": wantVersion} {
			if got := series(families, name)["resource=deployments.apps"].GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
	check(7, 50)
	releaseOne()
	check(4, 60)
}

func TestReleasedInformersDoNotPileUp(t *testing.T) {
	provider := InformerMetrics(nil).(*informerMetrics)
	for range 100 { // a CustomResourceDefinition that is created and deleted again
		id, release := identify(t, deployments)
		provider.NewQueuedItemMetric(id)
		provider.NewProcessingLatencyMetric(id)
		release()
	}
	if got := len(provider.gauges); got > 1 {
		t.Errorf("%d gauges are kept although nothing collects them, want at most the last", got)
	}
}

// recorder is a metrics provider for reflectors that counts the calls of its methods and metrics.
type recorder struct {
	cache.MetricsProvider
	asked atomic.Int64
}

type count struct{ of *atomic.Int64 }

func (c count) Inc()            { c.of.Add(1) }
func (c count) Set(float64)     { c.of.Add(1) }
func (c count) Observe(float64) { c.of.Add(1) }

func (r *recorder) count() count                                          { r.asked.Add(1); return count{&r.asked} }
func (r *recorder) NewListsMetric(string) cache.CounterMetric             { return r.count() }
func (r *recorder) NewListDurationMetric(string) cache.SummaryMetric      { return r.count() }
func (r *recorder) NewItemsInListMetric(string) cache.SummaryMetric       { return r.count() }
func (r *recorder) NewWatchesMetric(string) cache.CounterMetric           { return r.count() }
func (r *recorder) NewShortWatchesMetric(string) cache.CounterMetric      { return r.count() }
func (r *recorder) NewWatchDurationMetric(string) cache.SummaryMetric     { return r.count() }
func (r *recorder) NewItemsInWatchMetric(string) cache.SummaryMetric      { return r.count() }
func (r *recorder) NewLastResourceVersionMetric(string) cache.GaugeMetric { return r.count() }

// TestClientGoAsksForNoReflectorMetrics verifies that client-go provides no reflector metrics, as
// the package comment says. If client-go provides them again (kubernetes/kubernetes#134696), this
// test fails. Then add them to this package.
func TestClientGoAsksForNoReflectorMetrics(t *testing.T) {
	provider := &recorder{}
	cache.SetReflectorMetricsProvider(provider) // stays set for the rest of the test binary
	synctest.Test(t, func(t *testing.T) {
		lw := newListWatch()
		informer := cache.NewSharedIndexInformerWithOptions(lw, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); informer.RunWithContext(ctx) }()
		lw.add("41")
		synctest.Wait()
		if got := strings.Join(informer.GetStore().ListKeys(), " "); got != "default/web-41" {
			t.Errorf("the informer holds %q, want default/web-41", got)
		}
		cancel()
		<-ended
	})
	if got := provider.asked.Load(); got != 0 {
		t.Errorf("the reflector made or used metrics %d times, want never: provide them", got)
	}
}
