package outcome

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are those of one bus.
type Metrics struct {
	InFlight   prometheus.Gauge
	AckSeconds prometheus.Histogram

	published *prometheus.CounterVec // by result
}

// NewMetrics registers the metrics of the named bus, kuberelay_<bus>_..., with r, or
// nowhere if r is nil. Own are the results that only this bus has.
func NewMetrics(r prometheus.Registerer, bus string, own ...Result) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		InFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_" + bus + "_in_flight",
			Help: "Messages that await their acknowledgement.",
		}),
		AckSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_" + bus + "_ack_duration_seconds",
			Help:    "Time from handing a message over to its acknowledgement, of those acknowledged.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12), // to 12 s
		}),
		published: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_" + bus + "_publishes_total",
			Help: "Publishes completed, by result.",
		}, []string{"result"}),
	}
	for _, r := range append(common(), own...) {
		m.published.WithLabelValues(string(r))
	}
	return m
}

// Count counts a publish that has ended.
func (m *Metrics) Count(r Result) { m.published.WithLabelValues(string(r)).Inc() }
