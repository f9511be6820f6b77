package filter

import "github.com/prometheus/client_golang/prometheus"

// NewErrorsTotal registers the counter of failed evaluations, by resource.
func NewErrorsTotal(r prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuberelay_filter_errors_total",
		Help: "Object states for which KUBERELAY_FILTER failed, by resource. They are published anyway. If it grows, correct the expression. The log names the part that fails.",
	}, []string{"resource"})
	r.MustRegister(c)
	return c
}
