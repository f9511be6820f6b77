package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	inFlight   prometheus.Gauge
	ackSeconds prometheus.Histogram
	published  *prometheus.CounterVec // by result
	ready      prometheus.Gauge
	sessions   prometheus.Counter
	records    prometheus.Histogram
	bytes      prometheus.Counter
}

// newMetrics registers with r, or nowhere if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_kafka_in_flight",
			Help: "Messages that await their acknowledgement.",
		}),
		ackSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_kafka_ack_duration_seconds",
			Help:    "Time from handing a message over to its acknowledgement, of those acknowledged.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12), // to 12 s
		}),
		published: f.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_kafka_publishes_total",
			Help: "Publishes completed, by result.",
		}, []string{"result"}),
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
	for _, r := range results {
		m.published.WithLabelValues(string(r))
	}
	return m
}

func (m *metrics) batch(records, bytes int) {
	m.records.Observe(float64(records))
	m.bytes.Add(float64(bytes))
}
