package nats

import (
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestRisks verifies the risks of real streams: with one replica in a cluster, on a single server,
// and with three replicas.
func TestRisks(t *testing.T) {
	of := func(urls []string, replicas int) (settings []string, single bool) {
		bus := connect(t, Options{Connection: Connection{URLs: urls, Cluster: publishtest.Cluster}, Replicas: replicas})
		if err := bus.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range bus.Risks() {
			settings, single = append(settings, r.Setting), r.Single
		}
		return settings, single
	}
	cluster := natstest.StartCluster(t, 3)
	if got, _ := of(cluster.URLs, 3); got != nil {
		t.Errorf("three replicas: %q", got)
	}
	if got, single := of([]string{natstest.Start(t).Addr()}, 1); len(got) != 1 || got[0] != "num_replicas=1" || !single {
		t.Errorf("one server: %q, single %v", got, single)
	}
	other := natstest.StartCluster(t, 3)
	if got, single := of(other.URLs, 1); len(got) != 1 || got[0] != "num_replicas=1" || single {
		t.Errorf("one replica in a cluster: %q, single %v", got, single)
	}
}
