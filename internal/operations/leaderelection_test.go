package operations

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestLeaderElectionMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := LeaderElectionMetrics(r).NewLeaderMetric()
	value := func(name string) float64 {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		t.Fatalf("no metric %s", name)
		return 0
	}
	m.On("kuberelay")
	m.SlowpathExercised("kuberelay")
	if got := value("leader_election_master_status"); got != 1 {
		t.Errorf("while it leads: %v", got)
	}
	m.Off("kuberelay")
	if got := value("leader_election_master_status"); got != 0 {
		t.Errorf("then: %v", got)
	}
	if got := value("leader_election_slowpath_total"); got != 1 {
		t.Errorf("slow renewals: %v", got)
	}
}
