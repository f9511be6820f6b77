package leader

import "github.com/prometheus/client_golang/prometheus"

var (
	leaderDesc = prometheus.NewDesc("kuberelay_leader", "1 if this forwarder leads and may write, else 0. Alert if no replica has the value 1 for longer than the lease duration.", nil, nil)
	holderDesc = prometheus.NewDesc("kuberelay_lease_holder", "1 for the identity that held the lease when it was last read, unless nobody renews it anymore. Use it to find the pod that leads.", []string{"identity"}, nil)
)

// metrics computes the metrics when they are collected.
type metrics struct{ e *Election }

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- leaderDesc
	to <- holderDesc
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	leads := 0.0
	if m.e.Permit() == nil {
		leads = 1
	}
	to <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leads)
	if holder := m.e.Standing().Holder; holder != "" {
		to <- prometheus.MustNewConstMetric(holderDesc, prometheus.GaugeValue, 1, holder)
	}
}
