package operations

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuberelay/kuberelay/internal/clientgo/leaderelection"
)

// leaderElectionMetrics has the names that Kubernetes' own components use.
type leaderElectionMetrics struct {
	status   *prometheus.GaugeVec
	slowpath *prometheus.CounterVec
}

var (
	_ leaderelection.MetricsProvider = (*leaderElectionMetrics)(nil)
	_ leaderelection.LeaderMetric    = (*leaderElectionMetrics)(nil)
)

// LeaderElectionMetrics makes metrics for elections, with the lease's name as a label.
// client-go takes only one provider for the process, and the first one it is given.
func LeaderElectionMetrics(r prometheus.Registerer) leaderelection.MetricsProvider {
	return &leaderElectionMetrics{
		status: register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 if this process holds the lease, by client-go's account.",
		}, []string{"name"})),
		slowpath: register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leader_election_slowpath_total", Help: "Renewals of the lease that had to read it first.",
		}, []string{"name"})),
	}
}

func (m *leaderElectionMetrics) NewLeaderMetric() leaderelection.LeaderMetric { return m }

func (m *leaderElectionMetrics) On(name string)  { m.status.WithLabelValues(name).Set(1) }
func (m *leaderElectionMetrics) Off(name string) { m.status.WithLabelValues(name).Set(0) }
func (m *leaderElectionMetrics) SlowpathExercised(name string) {
	m.slowpath.WithLabelValues(name).Inc()
}
