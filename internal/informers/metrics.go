package informers

import "github.com/prometheus/client_golang/prometheus"

// metrics are those that are counted as things happen; see collector for the
// state of the informers.
type metrics struct {
	lists, watches *prometheus.CounterVec
	outOfScope     *prometheus.GaugeVec
	inferred       *prometheus.CounterVec
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
	}
	r.MustRegister(m.lists, m.watches, m.outOfScope, m.inferred)
	return m
}
