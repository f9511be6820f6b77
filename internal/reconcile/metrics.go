package reconcile

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	outOfScope *prometheus.GaugeVec
	inferred   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		outOfScope: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kuberelay_out_of_scope_objects",
			Help: "Objects on the bus, as of the last comparison, that the configuration no longer selects, or whose resource the cluster does not serve, without proof that it was removed. They stay on the bus. To get deselected events, set KUBERELAY_ON_DESELECT=publish.",
		}, []string{"resource"}),
		inferred: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuberelay_inferred_deletes_total",
			Help: "Deletes that no watch reported: the bus showed an object that a consistent read did not find. Normal after a restart, and when watches fail: see kuberelay_informer_failing.",
		}, []string{"resource"}),
	}
	r.MustRegister(m.outOfScope, m.inferred)
	return m
}

// setOutOfScope sets the number of objects out of scope. If the number is 0 and the resource is not
// watched, it drops the series of the resource.
func (m *metrics) setOutOfScope(resource string, n int, watched bool) {
	if n == 0 && !watched {
		m.outOfScope.DeleteLabelValues(resource)
		return
	}
	m.outOfScope.WithLabelValues(resource).Set(float64(n))
}

// forget drops the series of a resource that is not watched and has no live object on the bus. If
// the resource returns, its series start at 0.
func (m *metrics) forget(resource string) {
	m.outOfScope.DeleteLabelValues(resource)
	m.inferred.DeleteLabelValues(resource)
}
