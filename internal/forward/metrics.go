package forward

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	decisions *prometheus.CounterVec
	published *prometheus.CounterVec
	truncated *prometheus.CounterVec
	conflicts prometheus.Counter
	lag       prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_decisions_total",
			Help: "Decisions, one for each time a key was looked at, by the row of the table that applied.",
		}, []string{"reason"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_events_published_total",
			Help: "Events that the bus has acknowledged, by resource and type.",
		}, []string{"resource", "type"}),
		truncated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_events_truncated_total",
			Help: "Objects too large for the bus, of which only the metadata was published.",
		}, []string{"resource"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_publish_conflicts_total",
			Help: "Publishes that the bus refused because it held another event of the object than expected.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_event_lag_seconds",
			Help:    "Time from the observation of a change to the acknowledgement of its event.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 262 s
		}),
	}
	r.MustRegister(m.decisions, m.published, m.truncated, m.conflicts, m.lag)
	return m
}
