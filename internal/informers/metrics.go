package informers

import "github.com/prometheus/client_golang/prometheus"

// metrics are those that are counted as things happen; see collector for the
// state of the informers.
type metrics struct {
	lists, watches *prometheus.CounterVec
	outOfScope     *prometheus.GaugeVec
	inferred       *prometheus.CounterVec
	discoveries    *prometheus.CounterVec
	stops          *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_lists_total",
			Help: "Lists asked of the API server, one for each page, by resource. A watch that begins with a list is a watch.",
		}, []string{"resource"}),
		watches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_watches_total",
			Help: "Watches opened at the API server, by resource.",
		}, []string{"resource"}),
		outOfScope: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kuberelay_out_of_scope_objects",
			Help: "Objects that the bus shows as existing and that namespaces, selectors or resources no longer cover, at the last comparison. They are left alone.",
		}, []string{"resource"}),
		inferred: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_inferred_deletes_total",
			Help: "Deletes that no watch reported: the bus showed an object that a consistent read did not find.",
		}, []string{"resource"}),
		discoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_discovery_total",
			Help: "Times that the API server was asked what it serves, by result: changed, unchanged (by its ETag, so that it had no answer to make up), failed.",
		}, []string{"result"}),
		stops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_informer_stops_total",
			Help: "Informers stopped while the forwarder runs, by reason: not_served, not_selected, not_watchable, moved (to another version, and started again there).",
		}, []string{"reason"}),
	}
	r.MustRegister(m.lists, m.watches, m.outOfScope, m.inferred, m.discoveries, m.stops)
	return m
}

// noteOutOfScope keeps no series of a resource that is not watched and has none.
func (m *metrics) noteOutOfScope(resource string, n int, watched bool) {
	if n == 0 && !watched {
		m.outOfScope.DeleteLabelValues(resource)
		return
	}
	m.outOfScope.WithLabelValues(resource).Set(float64(n))
}

// forget drops the series of a resource that is not watched any more and of which the
// bus has nothing left. One that comes back begins anew.
func (m *metrics) forget(resource string) {
	m.lists.DeleteLabelValues(resource)
	m.watches.DeleteLabelValues(resource)
	m.outOfScope.DeleteLabelValues(resource)
	m.inferred.DeleteLabelValues(resource)
}
