package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kuberelay/kuberelay/internal/publish"
)

type metrics struct {
	*publish.Metrics
	ready    prometheus.Gauge
	sessions prometheus.Counter
	records  prometheus.Histogram
	bytes    prometheus.Counter
}

// newMetrics registers the metrics with r, or nowhere if r is nil. fetches returns the
// number of fetch requests sent.
func newMetrics(r prometheus.Registerer, fetches func() uint64) *metrics {
	f := promauto.With(r)
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "kuberelay_kafka_reads_total",
		Help: "Fetch requests. While nothing changes, only KUBERELAY_CHECKPOINT_REFRESH and the records of other writers cause reads; report a higher rate as a bug.",
	}, func() float64 { return float64(fetches()) })
	return &metrics{
		Metrics: publish.NewMetrics(r, "kafka", resultDenied),
		ready: f.NewGauge(prometheus.GaugeOpts{
			Name: "kuberelay_kafka_ready",
			Help: "1 while this forwarder is the writer and the brokers respond, else 0. Alert if no replica has the value 1: nothing is lost, but nothing is published.",
		}),
		sessions: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_kafka_sessions_total",
			Help: "Producer sessions started. A session starts when the forwarder begins to write, after an error with an unknown outcome, and every 12 hours. A steady rate means that brokers fail, or that another forwarder uses the same transactional ID: see the log.",
		}),
		records: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_kafka_batch_records",
			Help:    "Records in a batch. Shows how well events share batches; needs no action.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7), // to 4096
		}),
		bytes: f.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_kafka_batch_bytes_total",
			Help: "Bytes of batches sent, after compression; a repeated batch counts once. Use the rate for capacity planning.",
		}),
	}
}

func (m *metrics) batch(records, bytes int) {
	m.records.Observe(float64(records))
	m.bytes.Add(float64(bytes))
}
