package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestADefinitionThatComesAndGoesWhileWeRun_Slow creates and deletes a CustomResourceDefinition twice.
// Each time, the forwarder must publish the creation and deletion of its objects.
func TestADefinitionThatComesAndGoesWhileWeRun_Slow(t *testing.T) {
	const group = "coming.example.com"
	of := gvr(group, "v1", "gadgets")
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u, namespace := newUser(t, cp), controlplanetest.Namespace(t, cp)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps,*." + group, "NAMESPACES": namespace})
	f.start().ready()
	sub := subscribe(t, bus.URL)
	for _, round := range []string{"first", "again"} {
		u.defineGadgets(group, noConversion, "v1*")
		established := time.Now()
		u.createServed(of, namespace, gadget(group+"/v1", "one", 1))
		created := time.Now()
		seen := sub.awaitLastIsNot(subject(of, namespace, "one"), "deleted")
		t.Logf("%s: %s from 'Established' to the first event of its first object, of which %s until the API server had created that",
			round, since(established), created.Sub(established).Round(time.Millisecond))
		if kind := seen.kind(); kind != "created" && kind != "snapshot" {
			t.Errorf("%s: the first event is %s", round, kind)
		}
		u.createServed(of, namespace, gadget(group+"/v1", "two", 1))
		sub.awaitLastIsNot(subject(of, namespace, "two"), "deleted")
		f.clean()

		removed := time.Now()
		u.delete(definitions, "", "gadgets."+group)
		for _, name := range []string{"one", "two"} {
			sub.awaitLast(subject(of, namespace, name), "deleted", group+"/v1")
		}
		f.awaitGone("gadgets." + group)
		t.Logf("%s: %s from the removal to the last delete, and no informer", round, since(removed))
		f.clean()
	}
	f.stop()
}

// TestADefinitionMovesToAnotherVersion verifies that a migration to a new version publishes nothing.
// The definition first serves and prefers the new version, then stores it, and finally removes the
// old version. None of these steps may publish an event. The next change of an object is published
// in the new version.
func TestADefinitionMovesToAnotherVersion(t *testing.T) {
	const group = "moving.example.com"
	alpha, v1 := gvr(group, "v1alpha1", "gadgets"), gvr(group, "v1", "gadgets")
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "*." + group})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.defineGadgets(group, noConversion, "v1alpha1*")
	f.start().ready()
	sub := subscribe(t, bus.URL)
	names := []string{"kept", "changed", "later"}
	on := map[string]string{}
	for _, name := range names {
		u.createServed(alpha, namespace, gadget(group+"/v1alpha1", name, 1))
		on[name] = subject(alpha, namespace, name)
		sub.awaitLastIsNot(on[name], "deleted")
	}
	first := sub.kinds(on["kept"])

	moved := `kuberelay_informer_stops_total{reason="moved"}`
	f.awaitMetric(moved, false)
	u.defineGadgets(group, noConversion, "v1alpha1*", "v1")
	f.awaitMetric(moved+" 1", true)
	f.idle()
	u.label(v1, namespace, "changed", "once")
	if r := sub.awaitLast(on["changed"], "updated", group+"/v1"); decode(t, r.data)["apiVersion"] != group+"/v1" {
		t.Errorf("the data is %s", r.data)
	}
	if out := f.clean(); strings.Contains(out, "not served") {
		t.Errorf("both versions are served, so all can be compared: %s", out)
	}

	u.defineGadgets(group, noConversion, "v1alpha1", "v1*") // v1 becomes the stored version
	u.label(v1, namespace, "changed", "twice")
	poll.Try(t, "the second change is on the bus", func(context.Context) error {
		if got := len(sub.of(on["changed"])); got != 3 {
			return fmt.Errorf("%d events", got)
		}
		return nil
	})
	u.defineGadgets(group, noConversion, "v1alpha1-", "v1*") // the old version is no longer served
	u.label(v1, namespace, "later", "once")
	sub.awaitLast(on["later"], "updated", group+"/v1")
	f.idle()
	sub.end()
	if got := sub.kinds(on["kept"]); got != first {
		t.Errorf("an unchanged object has %q, want %q", got, first)
	}
	if got, want := sub.kinds(on["changed"]), first+" updated updated"; got != want {
		t.Errorf("an object that changed twice has %q, want %q", got, want)
	}
	if got, want := sub.kinds(on["later"]), first+" updated"; got != want {
		t.Errorf("an object that changed once has %q, want %q", got, want)
	}
	f.await("verify says what it cannot compare", func(context.Context) error { // discovery may list the old version longer than the API server serves it
		code, stdout, stderr := f.run("verify", settle)
		if code != 0 || !strings.Contains(stdout, "1 object on the bus in an API version that the cluster no longer serves") {
			return fmt.Errorf("it ended with %d: %s%s", code, stdout, stderr)
		}
		return nil
	})

	// A restart finds everything unchanged, too.
	f.kill()
	f.start().idle()
	sub.end()
	if got := sub.kinds(on["kept"]); got != first {
		t.Errorf("after a restart an unchanged object has %q, want %q", got, first)
	}
	f.stop()
}

// TestAConversionWebhookThatIsDown_Slow verifies that a resource whose conversion webhook fails is
// reported as degraded. The events of its objects stay on the bus, and all other resources continue.
// The resource recovers when the webhook does.
func TestAConversionWebhookThatIsDown_Slow(t *testing.T) {
	const group, other = "converted.example.com", "plain.example.com"
	alpha, v1, plain := gvr(group, "v1alpha1", "gadgets"), gvr(group, "v1", "gadgets"), gvr(other, "v1", "gadgets")
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "*." + group + ",*." + other})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.defineGadgets(group, noConversion, "v1alpha1*")
	u.defineGadgets(other, noConversion, "v1*")
	f.start().ready()
	sub := subscribe(t, bus.URL)
	u.createServed(alpha, namespace, gadget(group+"/v1alpha1", "one", 1))
	one := subject(alpha, namespace, "one")
	first := sub.awaitLastIsNot(one, "deleted").kind()

	// The API server can no longer read objects that are stored as v1alpha1 as v1.
	u.defineGadgets(group, deadConversion, "v1alpha1*", "v1")
	f.awaitMetric(`kuberelay_informer_state{reason="failing",resource="gadgets.`+group+`",state="degraded"} 1`, true)
	for n := range 3 {
		u.createServed(plain, namespace, gadget(other+"/v1", fmt.Sprintf("p%d", n), 1))
		sub.awaitLastIsNot(subject(plain, namespace, fmt.Sprintf("p%d", n)), "deleted")
	}
	u.delete(plain, namespace, "p0")
	sub.awaitLast(subject(plain, namespace, "p0"), "deleted", other+"/v1")
	f.awaitMetric(`kuberelay_informer_state{reason="",resource="gadgets.`+other+`",state="synced"} 1`, true)
	f.awaitReason("gadgets." + group)
	if got := sub.kinds(one); got != first {
		t.Errorf("with the webhook down: %q, want %q", got, first)
	}
	// After a restart, only the bus knows the objects. The forwarder must not publish deletes for
	// them.
	f.kill()
	f.start()
	f.awaitMetric(`kuberelay_informer_state{reason="failing",resource="gadgets.`+group+`",state="degraded"} 1`, true)
	u.label(plain, namespace, "p1", "while-down")
	sub.awaitLast(subject(plain, namespace, "p1"), "updated", other+"/v1")
	if got := sub.kinds(one); got != first {
		t.Errorf("after a restart with the webhook down: %q, want %q", got, first)
	}

	u.defineGadgets(group, noConversion, "v1alpha1*", "v1")
	f.awaitMetric(`kuberelay_informer_state{reason="",resource="gadgets.`+group+`",state="synced"} 1`, true)
	u.label(v1, namespace, "one", "when-it-is-back")
	sub.awaitLast(one, "updated", group+"/v1")
	if got, want := sub.kinds(one), first+" updated"; got != want {
		t.Errorf("when it is back: %q, want %q", got, want)
	}
	f.clean()
	f.stop()
}

// TestAnAPIServiceWithoutABackEnd verifies that the forwarder concludes nothing about a group whose
// discovery fails, not even from a change of the definition. Other resources continue. The forwarder
// notices when the APIService is removed.
func TestAnAPIServiceWithoutABackEnd(t *testing.T) {
	const group, other = "backed.example.com", "rest.example.com"
	of, plain := gvr(group, "v1", "gadgets"), gvr(other, "v1", "gadgets")
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "*." + group + ",*." + other})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.defineGadgets(group, noConversion, "v1*")
	f.start().ready()
	sub := subscribe(t, bus.URL)
	u.createServed(of, namespace, gadget(group+"/v1", "one", 1))
	one := subject(of, namespace, "one")
	first := sub.awaitLastIsNot(one, "deleted").kind()

	// The APIService takes the version v1 away from the definition.
	failing := `kuberelay_discovery_failing{group="` + group + `"} 1`
	u.takeOver(group, "v1")
	f.awaitMetric(failing, true)
	u.defineGadgets(other, noConversion, "v1*")
	u.createServed(plain, namespace, gadget(other+"/v1", "two", 1))
	sub.awaitLastIsNot(subject(plain, namespace, "two"), "deleted")
	if got := sub.kinds(one); got != first {
		t.Errorf("with the back end away: %q, want %q", got, first)
	}
	f.kill()
	f.start()
	f.awaitMetric(failing, true)
	u.label(plain, namespace, "two", "yes")
	sub.awaitLast(subject(plain, namespace, "two"), "updated", other+"/v1")
	if got := sub.kinds(one); got != first {
		t.Errorf("after a restart with the back end away: %q, want %q", got, first)
	}

	// Without the APIService, the API server serves v1 itself again.
	if err := u.of(apiServices, "").Delete(t.Context(), "v1."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitMetric(`kuberelay_discovery_failing{group="`, false)
	u.labelServed(of, namespace, "one", "yes")
	sub.awaitLast(one, "updated", group+"/v1")
	if got, want := sub.kinds(one), first+" updated"; got != want {
		t.Errorf("when it is removed: %q, want %q", got, want)
	}
	f.clean()
	f.stop()
}

// TestDiscoveryPollsWithoutWatchPermission verifies discovery for a user who may neither read nor
// watch definitions and APIServices. Without this permission, the forwarder has no proof that a
// resource is gone, so its informer stays. The deletes of the resource's objects arrive through the
// watch.
func TestDiscoveryPollsWithoutWatchPermission(t *testing.T) {
	const group = "polling.example.com"
	of := gvr(group, "v1", "gadgets")
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "readers-of-" + group}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "little"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.Background(), name.Name, metav1.DeleteOptions{})
		_ = client.RbacV1().ClusterRoles().Delete(context.Background(), name.Name, metav1.DeleteOptions{})
	})
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, map[string]string{"RESOURCES": "configmaps,*." + group, "NAMESPACES": namespace})
	f.start().ready()
	sub := subscribe(t, bus.URL)
	u.defineGadgets(group, noConversion, "v1*")
	established := time.Now()
	u.createServed(of, namespace, gadget(group+"/v1", "one", 1))
	created := time.Now()
	sub.awaitLastIsNot(subject(of, namespace, "one"), "deleted")
	t.Logf("%s from 'Established' to the first event of its first object, of which %s until the API server had created that",
		since(established), created.Sub(established).Round(time.Millisecond))
	f.clean()
	removed := time.Now()
	u.delete(definitions, "", "gadgets."+group)
	sub.awaitLast(subject(of, namespace, "one"), "deleted", group+"/v1")
	t.Logf("%s from the removal to the last delete", since(removed))
	f.awaitMetric(`kuberelay_informer_state{reason="not_found",resource="gadgets.`+group+`",state="degraded"} 1`, true)
	f.clean()
	f.stop()
}
