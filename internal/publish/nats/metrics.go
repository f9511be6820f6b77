package nats

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	inFlight   prometheus.Gauge
	ackSeconds prometheus.Histogram
	published  *prometheus.CounterVec // by result
	connected  prometheus.Gauge
	reconnects prometheus.Counter
}

// newMetrics registers with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_nats_in_flight",
			Help: "Messages that await their acknowledgement.",
		}),
		ackSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_nats_ack_duration_seconds",
			Help:    "Time from handing a message over to its acknowledgement, of those acknowledged.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12), // to 12 s
		}),
		published: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_nats_publishes_total",
			Help: "Publishes completed, by result.",
		}, []string{"result"}),
		connected: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_nats_connected",
			Help: "1 while connected to a server, else 0.",
		}),
		reconnects: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_nats_reconnects_total",
			Help: "Connections made after the first.",
		}),
	}
	for _, r := range results {
		m.published.WithLabelValues(string(r))
	}
	return m
}
