package operations

import (
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/client-go/tools/leaderelection"
)

// leaderElectionMetrics uses the metric names of Kubernetes' own components.
type leaderElectionMetrics struct {
	status   *prometheus.GaugeVec
	slowpath *prometheus.CounterVec
}

var (
	_ leaderelection.MetricsProvider = (*leaderElectionMetrics)(nil)
	_ leaderelection.LeaderMetric    = (*leaderElectionMetrics)(nil)
)

// LeaderElectionMetrics returns metrics for elections, with the name of the lease as a label. client-go
// uses only the first provider that a process sets.
func LeaderElectionMetrics(r prometheus.Registerer) leaderelection.MetricsProvider {
	return &leaderElectionMetrics{
		status: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 if this process holds the lease according to client-go, else 0. Use kuberelay_leader for alerts: it also checks the age of the last renewal.",
		}, []string{"name"})),
		slowpath: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leader_election_slowpath_total", Help: "Renewals for which the leader had to read the lease first. A steady rate means that something else writes to the lease.",
		}, []string{"name"})),
	}
}

func (m *leaderElectionMetrics) NewLeaderMetric() leaderelection.LeaderMetric { return m }

func (m *leaderElectionMetrics) On(name string)  { m.status.WithLabelValues(name).Set(1) }
func (m *leaderElectionMetrics) Off(name string) { m.status.WithLabelValues(name).Set(0) }
func (m *leaderElectionMetrics) SlowpathExercised(name string) {
	m.slowpath.WithLabelValues(name).Inc()
}
