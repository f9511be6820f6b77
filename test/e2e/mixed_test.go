package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// TestMixedVersionsOfTheAPIServer_Slow verifies that API servers of different versions behind one address
// cause no delete. One of them doesn't serve a built-in resource. Discovery must not stop the
// resource's informer, neither while the forwarder runs nor when it starts.
func TestMixedVersionsOfTheAPIServer_Slow(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{})
	older, err := cp.AddAPIServer(t.Context(), "--runtime-config=policy/v1=false")
	if err != nil {
		t.Fatal(err)
	}
	address := faultproxy.Start(t, cp.Address())
	direct := func(server string) {
		address.Direct(server)
		address.Break()
	}
	admin, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(strings.ReplaceAll(string(admin), cp.Address(), address.Addr())), 0o600); err != nil {
		t.Fatal(err)
	}

	bus, u := natsServer(t), newUser(t, cp)
	budgets := gvr("policy", "v1", "poddisruptionbudgets")
	u.create(budgets, "default", `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: one}}`)
	one := subject(budgets, "default", "one")
	f := newForwarder(t, kubeconfig, bus.URL, map[string]string{"RESOURCES": "*"})
	f.start().ready()
	f.idle()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(one, "snapshot")

	const (
		refused = `kuberelay_informer_state{reason="not_found",resource="poddisruptionbudgets.policy",state="degraded"} 1`
		synced  = `kuberelay_informer_state{reason="",resource="poddisruptionbudgets.policy",state="synced"} 1`
	)
	for range 2 {
		direct(older.Address())
		f.awaitMetric(refused, true)
		direct(cp.Address())
		f.awaitMetric(synced, true)
	}
	f.awaitMetric(`kuberelay_informer_stops_total{reason="not_served"}`, false)
	u.label(budgets, "default", "one", "changed")
	sub.awaitKinds(one, "snapshot updated")

	f.kill()
	direct(older.Address())
	f.start().ready()
	f.awaitMetric(`kuberelay_out_of_scope_objects{resource="poddisruptionbudgets.policy"} 1`, true)
	direct(cp.Address())
	f.awaitMetric(synced, true)
	u.label(budgets, "default", "one", "again")
	sub.awaitKinds(one, "snapshot updated updated")
	f.clean()
	f.stop()
}
