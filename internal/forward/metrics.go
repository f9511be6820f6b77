package forward

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/event"
)

type metrics struct {
	decisions *prometheus.CounterVec
	published *prometheus.CounterVec
	truncated *prometheus.CounterVec
	conflicts prometheus.Counter
	foreign   prometheus.Counter
	lag       prometheus.Histogram
	endToEnd  prometheus.Histogram
	bytes     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_decisions_total",
			Help: "Decisions by reason, one for each processed key: see docs/architecture.md. While nothing changes, only unchanged grows, by one for each object at each resync.",
		}, []string{"reason"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_events_published_total",
			Help: "Events that the bus acknowledged, by resource and type. Use the rate for capacity planning. If several forwarders write, count the events on the bus instead.",
		}, []string{"resource", "type"}),
		truncated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_events_truncated_total",
			Help: "Events, by resource, that were published with metadata only because the object is too large for the bus. Raise the limit of the bus, or drop fields with KUBERELAY_DROP_FIELDS.",
		}, []string{"resource"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_publish_conflicts_total",
			Help: "Publishes that the bus refused because it held another event of the object than expected. Normal after a lost acknowledgement. A steady rate means that another writer is active: see docs/high-availability.md.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kuberelay_foreign_events_total",
			Help: "Events of another writer that contradicted the cluster. After each, the forwarder published the state of the object again. Should stay 0: alert on any increase, and see docs/troubleshooting.md.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_event_lag_seconds",
			Help:    "Time from the observation of a change to the acknowledgement of its event, for acknowledged events only. Alert on a high quantile. During an outage of the bus, use kuberelay_oldest_unsent_change_seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 262 s
		}),
		endToEnd: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kuberelay_end_to_end_lag_seconds",
			Help:    "Time from the write of an object at the API server to the acknowledgement of its event. The write time is the newest in metadata.managedFields, in whole seconds of the API server's clock. So the lag is up to 1 s too high, and clock skew adds to it; a negative lag counts as 0. Only created and updated events with a newer write time than the previous state count. Alert on a high quantile, and see kuberelay_event_lag_seconds for the part of the forwarder and the bus.",
			Buckets: []float64{1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 900, 3600},
		}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_published_bytes_total",
			Help: "Bytes of the data of acknowledged events, by resource, before compression and without attributes. Use the rate for capacity planning.",
		}, []string{"resource"}),
	}
	r.MustRegister(m.decisions, m.published, m.truncated, m.conflicts, m.foreign, m.lag, m.endToEnd, m.bytes)
	return m
}

// wroteAt returns the time when the API server wrote the state that c publishes. The time is known
// only for a create or an update that a watch reported, and for an update only if the previous state
// is known. It is unknown for a change that metadata.managedFields does not record: a change that
// only removes fields, or a change in the same second as the previous one.
func wroteAt(c event.Change) (at time.Time, ok bool) {
	switch {
	case c.Object.Written == 0 || c.Cause != event.CauseWatch || c.After != 0:
		return time.Time{}, false
	case c.Type == event.Created:
	case c.Type == event.Updated && c.Before != nil && c.Before.Written != 0 && c.Before.Written < c.Object.Written:
	default:
		return time.Time{}, false
	}
	return time.Unix(int64(c.Object.Written), 0), true
}
