package operations

import (
	"github.com/prometheus/client_golang/prometheus"
	kubequeue "k8s.io/client-go/util/workqueue"
)

// workqueueBuckets go from 0.1 ms to 105 s. Those of Kubernetes' own components begin
// at 10 ns: they are for work that does not wait for a bus.
var workqueueBuckets = prometheus.ExponentialBuckets(0.0001, 4, 11)

// workqueueMetrics has the names that Kubernetes' own components use, for the
// dashboards and alerts that there are.
type workqueueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

var _ kubequeue.MetricsProvider = (*workqueueMetrics)(nil)

// WorkqueueMetrics makes metrics for queues, with the queue's name as a label. It is
// given to each queue in its config: client-go's process-wide provider is left alone.
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
		depth:      gauge("workqueue_depth", "Items that wait to be handed out, those added again while being worked on included, those in back-off not."),
		adds:       counter("workqueue_adds_total", "Items added, those already waiting not counted, and those that can wait when it is nearly their turn."),
		latency:    histogram("workqueue_queue_duration_seconds", "Time that an item waited to be handed out; one that can wait, since it is nearly its turn."),
		duration:   histogram("workqueue_work_duration_seconds", "Time from handing an item out to its completion."),
		retries:    counter("workqueue_retries_total", "Items put into back-off."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Sum of the time that the items handed out and not completed have taken so far."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Time that the oldest item handed out and not completed has taken so far."),
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
