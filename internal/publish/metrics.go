package publish

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of one bus.
type Metrics struct {
	InFlight   prometheus.Gauge
	AckSeconds prometheus.Histogram

	published *prometheus.CounterVec // by result
}

// NewMetrics registers the metrics of the named bus, kuberelay_<bus>_..., with r, or nowhere if r is
// nil. own lists the results that only this bus has.
func NewMetrics(r prometheus.Registerer, bus string, own ...Result) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		InFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_" + bus + "_in_flight",
			Help: "Messages that await an acknowledgement. If it stays at the limit (KUBERELAY_NATS_MAX_IN_FLIGHT, KUBERELAY_KAFKA_MAX_IN_FLIGHT), the bus is the bottleneck.",
		}),
		AckSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_" + bus + "_ack_duration_seconds",
			Help:    "Time from handing a message to the bus client to its acknowledgement, for acknowledged messages only. If it grows, the bus is slow.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12), // to 12 s
		}),
		published: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_" + bus + "_publishes_total",
			Help: "Completed publishes, by result. All results except stored and already_stored are retried. If a retried result keeps growing, see the log and docs/troubleshooting.md.",
		}, []string{"result"}),
	}
	for _, r := range append(commonResults(), own...) {
		m.published.WithLabelValues(string(r))
	}
	return m
}

// Count counts a completed publish.
func (m *Metrics) Count(r Result) { m.published.WithLabelValues(string(r)).Inc() }
