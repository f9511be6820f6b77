package operations

import (
	"github.com/prometheus/client_golang/prometheus"
	kubequeue "k8s.io/client-go/util/workqueue"
)

// workqueueBuckets range from 0.1 ms to 105 s. The buckets of Kubernetes' own components start at
// 10 ns, because their work does not wait for a bus.
var workqueueBuckets = prometheus.ExponentialBuckets(0.0001, 4, 11)

// workqueueMetrics uses the metric names of Kubernetes' own components, so that existing
// dashboards and alerts work.
type workqueueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

var _ kubequeue.MetricsProvider = (*workqueueMetrics)(nil)

// WorkqueueMetrics returns metrics for queues, with the name of the queue as a label. Pass
// it to each queue in its config. It does not use client-go's process-wide provider.
func WorkqueueMetrics(r prometheus.Registerer) kubequeue.MetricsProvider {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"name"}))
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"name"}))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: workqueueBuckets}, []string{"name"}))
	}
	return &workqueueMetrics{
		depth:      gauge("workqueue_depth", "Keys that wait for a worker, excluding keys in backoff. If it keeps growing, the bus is slow."),
		adds:       counter("workqueue_adds_total", "Keys added; a key that is already waiting does not count, and a background key counts when it enters the workqueue (docs/delivery.md, Priorities). Use the rate to see the load."),
		latency:    histogram("workqueue_queue_duration_seconds", "Time that a key waited for a worker; for a background key, since it entered the workqueue. If it grows, the bus is slow."),
		duration:   histogram("workqueue_work_duration_seconds", "Time from handing a key to a worker to its completion, which includes the acknowledgement of the bus. If it grows, the bus is slow."),
		retries:    counter("workqueue_retries_total", "Keys put into backoff after a failure. A steady rate means that the bus rejects events: see the log."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Sum of the time that the unfinished keys have taken so far. If it keeps growing, acknowledgements do not arrive."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Time that the oldest unfinished key has taken so far. If it stays above the acknowledgement timeout, see the log."),
	}
}

func (m *workqueueMetrics) NewDepthMetric(name string) kubequeue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *workqueueMetrics) NewAddsMetric(name string) kubequeue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *workqueueMetrics) NewLatencyMetric(name string) kubequeue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

func (m *workqueueMetrics) NewWorkDurationMetric(name string) kubequeue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}

func (m *workqueueMetrics) NewUnfinishedWorkSecondsMetric(name string) kubequeue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *workqueueMetrics) NewLongestRunningProcessorSecondsMetric(name string) kubequeue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *workqueueMetrics) NewRetriesMetric(name string) kubequeue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
