package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextsOf returns a kubeconfig with a context for each member. The default namespace of each
// context is shared.
func contextsOf(t *testing.T, members map[string]*member) string {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for name, m := range members {
		one, err := clientcmd.LoadFromFile(m.cp.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		in := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[in.Cluster], one.AuthInfos[in.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: shared}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// awaitLeads waits until the forwarder leads the cluster (want 1) or is a standby (want 0).
func (f *forwarder) awaitLeads(cluster string, want float64) {
	f.t.Helper()
	f.await(fmt.Sprintf("kuberelay_leader of %s is %v", cluster, want), func(ctx context.Context) error {
		got, err := f.Metric(ctx, `kuberelay_leader\{cluster="`+cluster+`"\}`)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
}

// TestProcessesShareTheClusters_Slow runs two processes with the contexts of one kubeconfig. One process
// must lead each cluster. After one process is killed, the other must take over all its clusters.
func TestProcessesShareTheClusters_Slow(t *testing.T) {
	management, workload := newMember(t, "management"), newMember(t, "workload-1")
	onFleets(t, "contexts", func(t *testing.T, bus fleetBus) {
		members := []*member{management.in(t), workload.in(t)}
		set := map[string]string{"KUBECONFIG_CONTEXTS": "management,workload-1=other"}
		maps.Copy(set, shortLease)
		kubeconfig := contextsOf(t, map[string]*member{"management": management, "other": workload, "unused": workload})
		dies := fleetForwarder(t, bus, kubeconfig, set).start().ready()
		for _, m := range members {
			dies.awaitLeads(m.name, 1)
		}
		takes := fleetForwarder(t, bus, kubeconfig, set).start().ready()
		for _, m := range members {
			takes.awaitLeads(m.name, 0)
			m.create(configMaps, shared, configMap("gone-"+m.name, "1"))
			bus.awaitKinds(t, m.name, "gone-"+m.name, "created")
		}
		dies.awaitCluster("unused", -1)
		dies.awaitCluster("other", -1)
		dies.kill()
		for _, m := range members {
			m.delete(configMaps, shared, "gone-"+m.name)
			m.create(configMaps, shared, configMap("late-"+m.name, "1"))
		}
		for _, m := range members {
			bus.awaitKinds(t, m.name, "gone-"+m.name, "created deleted")
			bus.awaitKinds(t, m.name, "late-"+m.name, "created")
			takes.awaitLeads(m.name, 1)
		}
		dies.start().ready()
		for _, m := range members {
			dies.awaitLeads(m.name, 0)
			bus.exact(t, m, takes)
		}
		takes.stop()
		for _, m := range members {
			dies.awaitLeads(m.name, 1)
			m.create(configMaps, shared, configMap("last-"+m.name, "1"))
			bus.awaitKinds(t, m.name, "last-"+m.name, "created")
			bus.exact(t, m, dies)
		}
		dies.stop()
	})
}
