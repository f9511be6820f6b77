package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/publish/outcome"
)

type metrics struct {
	*outcome.Metrics
	ready    prometheus.Gauge
	sessions prometheus.Counter
	records  prometheus.Histogram
	bytes    prometheus.Counter
}

// newMetrics registers with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		Metrics: outcome.NewMetrics(r, "kafka", resultDenied),
		ready: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_kafka_ready",
			Help: "1 while this is the writer and the brokers answer, else 0.",
		}),
		sessions: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_kafka_sessions_total",
			Help: "How often this has become the writer: at its start, after whatever left doubt, and once a day.",
		}),
		records: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_kafka_batch_records",
			Help:    "Records in a batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7), // to 4096
		}),
		bytes: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_kafka_batch_bytes_total",
			Help: "Bytes of the batches sent, after compression; those sent again counted once.",
		}),
	}
}

func (m *metrics) batch(records, bytes int) {
	m.records.Observe(float64(records))
	m.bytes.Add(float64(bytes))
}
