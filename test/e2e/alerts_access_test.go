package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// slowAlerts injects two faults, a slow bus and a watch that hangs, and verifies that each fires its
// alert.
func slowAlerts(t *testing.T, fired map[string]bool) {
	l := newAlertsLab(t)
	l.f.kill()
	a := &alerting{t: t, rules: chartRules(t, "prometheusRule.for=5m", "prometheusRule.thresholds.lagSeconds=3"), fired: fired}
	cp := cluster.ControlPlane(t)
	api := faultproxy.Start(t, strings.TrimPrefix(cp.Config().Host, "https://"))
	settings := l.settings()
	settings["RESOURCES"] = "configmaps"
	f := newForwarder(t, through(t, cp.Kubeconfig(), api.Addr()), l.bus.URL, settings)
	f.start().idle()

	a.fault("a bus that is slow", []*forwarder{f}, func(h *timeline) {
		for range 2 {
			l.bus.Freeze()
			l.change()
			f.reaches("kuberelay_oldest_unsent_change_seconds", 4)
			l.bus.Thaw()
			f.idle()
			h.scrape(4)
		}
	}, "KuberelaySlow")

	a.rules = chartRules(t, "prometheusRule.for=5m", "prometheusRule.thresholds.consistencySeconds=5")
	l.change()
	f.idle()
	f.falls("kuberelay_resolved_age_seconds", 2)
	a.fault("a watch that hangs", []*forwarder{f}, func(*timeline) {
		api.Freeze()
		f.reaches("kuberelay_resolved_age_seconds", 6)
	}, "KuberelayConsistencyPointOld")
	api.Pass()
}

// accessAlerts revokes the permissions of the forwarder's user.
func accessAlerts(t *testing.T, a *alerting) {
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	bus := natsServer(t)
	const read, elect = `{"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": ["get", "list", "watch"]}`, `{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "create", "update"]}`
	roles, leases := gvr("rbac.authorization.k8s.io", "v1", "roles"), gvr("coordination.k8s.io", "v1", "leases")
	u.create(roles, namespace, `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [`+read+","+elect+"]}")
	u.create(gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]`)
	grant := func(rules string) {
		t.Helper()
		if _, err := u.of(roles, namespace).Patch(t.Context(), "reader", types.MergePatchType, []byte(`{"rules": [`+rules+`]}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitAccess(t, cp, leases, namespace, true)
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, merged(shortLease, map[string]string{
		"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "LEASE_NAMESPACE": namespace, "LEASE_NAME": namespace,
	}))
	f.start().idle()
	f.reaches("kuberelay_leader", 1)
	a.fault("a right that is withdrawn", []*forwarder{f}, func(*timeline) {
		grant(strings.ReplaceAll(read, `, "services"`, "") + "," + elect)
		awaitAccess(t, cp, gvr("", "v1", "services"), namespace, false)
		f.kill()
		f.start()
		f.awaitMetric(`kuberelay_informer_state{reason="forbidden",resource="services",state="degraded"} 1`, true)
		f.reaches("kuberelay_leader", 1)
		f.idle()
	}, "KuberelayInformerDegraded")
	grant(read + "," + elect)
	f.awaitMetric(`kuberelay_informer_state{reason="forbidden",resource="services",state="degraded"} 1`, false)
	f.idle()
	a.fault("a lease that may not be renewed", []*forwarder{f}, func(*timeline) {
		grant(read)
		f.falls("kuberelay_leader", 0)
	}, "KuberelayNobodyLeads")
}
