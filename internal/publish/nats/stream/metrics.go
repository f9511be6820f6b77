package stream

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	reads      prometheus.Counter
}

// newMetrics registers the metrics with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		connected: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_nats_connected",
			Help: "1 while connected to a NATS server, else 0. Alert on 0: nothing is lost, but nothing is published.",
		}),
		reconnects: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_nats_reconnects_total",
			Help: "Reconnects to NATS. A steady rate means that the network or the servers drop connections.",
		}),
		reads: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_nats_reads_total",
			Help: "Reads of the stream: single messages, and reads of the checkpoint. While nothing changes, Kuberelay reads only the claim of the cluster name, every 10 s, and the checkpoint, every KUBERELAY_CHECKPOINT_REFRESH. Report a higher rate as a bug.",
		}),
	}
}
