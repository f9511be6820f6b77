package nats

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

type metrics struct {
	*outcome.Metrics
	connected  prometheus.Gauge
	reconnects prometheus.Counter
}

// newMetrics registers with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		Metrics: outcome.NewMetrics(r, "nats", resultFull, resultDisconnected, resultNoStream),
		connected: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_nats_connected",
			Help: "1 while connected to a server, else 0.",
		}),
		reconnects: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_nats_reconnects_total",
			Help: "Connections made after the first.",
		}),
	}
}
