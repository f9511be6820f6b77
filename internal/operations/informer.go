package operations

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
)

// InformerMetrics returns metrics for informers, with the resource as a label. Pass it in the
// options of each informer, together with an identity. InformerMetrics does not use client-go's
// process-wide provider.
//
// client-go accepts an identity for one informer only, and does not release it by itself. So each
// informer needs its own [cache.InformerName], with a name that is unique in the process, and its
// owner must call Release when the informer has stopped. Otherwise a resource that is removed and
// added again has no metrics. The metrics do not show the name. A resource can have several
// informers, one per namespace: the metrics combine their gauges. The gauges of a released informer
// disappear, and the histogram of a resource disappears with its last informer.
func InformerMetrics(r prometheus.Registerer) cache.InformerMetricsProvider {
	return register(r, &informerMetrics{
		processing: register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "informer_processing_latency_seconds",
			Help:    "Time to apply one change, or one batch of changes, to the informer's cache. If it grows, the forwarder lacks CPU.",
			Buckets: prometheus.ExponentialBuckets(0.001, 10, 5), // 1 ms to 10 s; few, because each resource has them
		}, []string{"resource"})),
	})
}

// informerMetrics holds the gauges of all informers, and the histograms of their resources.
type informerMetrics struct {
	processing *prometheus.HistogramVec

	mu     sync.Mutex
	gauges []*informerGauge
}

var _ cache.InformerMetricsProvider = (*informerMetrics)(nil)

func (m *informerMetrics) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return m.add(id, queuedDesc)
}

func (m *informerMetrics) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return m.add(id, storeVersionDesc)
}

func (m *informerMetrics) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return m.processing.WithLabelValues(resourceLabel(id)) // client-go has already asked for a gauge of the informer
}

// resourceLabel returns the resource in the format of the forwarder's other metrics.
func resourceLabel(id cache.InformerNameAndResource) string {
	return id.GroupVersionResource().GroupResource().String()
}

var (
	queuedDesc = prometheus.NewDesc("informer_queued_items",
		"Changes received and not yet in the informer's cache. If it stays above 0, the forwarder lacks CPU.", []string{"resource"}, nil)
	storeVersionDesc = prometheus.NewDesc("informer_store_resource_version",
		"Last 15 digits of the resourceVersion that the informer's cache has reached; with several namespaces, the lowest. Compare it with the API server to see how far a watch is behind.", []string{"resource"}, nil)
)

// informerGauge is a gauge of one informer. It has no value until Set is called.
type informerGauge struct {
	id   cache.InformerNameAndResource
	desc *prometheus.Desc
	set  atomic.Bool
	bits atomic.Uint64 // the bits of a float64
}

// Set implements [cache.GaugeMetric].
func (g *informerGauge) Set(v float64) {
	g.bits.Store(math.Float64bits(v))
	g.set.Store(true)
}

func (m *informerMetrics) add(id cache.InformerNameAndResource, desc *prometheus.Desc) *informerGauge {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetReleased()
	added := &informerGauge{id: id, desc: desc}
	m.gauges = append(m.gauges, added)
	return added
}

// forgetReleased removes the gauges of released informers, and the histograms of resources without an
// informer. It runs at every scrape, and at every addition so that the gauges do not accumulate
// without scrapes.
func (m *informerMetrics) forgetReleased() {
	released := map[string]bool{} // whether all informers of a resource are released
	m.gauges = slices.DeleteFunc(m.gauges, func(i *informerGauge) bool {
		resource, is := resourceLabel(i.id), !i.id.Reserved()
		others, known := released[resource]
		released[resource] = is && (others || !known)
		return is
	})
	for resource, is := range released {
		if is {
			m.processing.DeleteLabelValues(resource)
		}
	}
}

// Describe implements [prometheus.Collector].
func (m *informerMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- queuedDesc
	to <- storeVersionDesc
}

// Collect implements [prometheus.Collector].
func (m *informerMetrics) Collect(to chan<- prometheus.Metric) {
	queued, versions := m.byResource()
	for resource, v := range queued {
		to <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, v, resource)
	}
	for resource, v := range versions {
		to <- prometheus.MustNewConstMetric(storeVersionDesc, prometheus.GaugeValue, v, resource)
	}
}

func (m *informerMetrics) byResource() (queued, versions map[string]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetReleased()
	queued, versions = map[string]float64{}, map[string]float64{}
	for _, i := range m.gauges {
		if !i.set.Load() {
			continue
		}
		resource, v := resourceLabel(i.id), math.Float64frombits(i.bits.Load())
		if i.desc == queuedDesc {
			queued[resource] += v
		} else if lowest, ok := versions[resource]; !ok || v < lowest {
			versions[resource] = v
		}
	}
	return queued, versions
}
