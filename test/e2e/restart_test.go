package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func TestARestartWithNothingChangedPublishesNothing(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	// Select only resources that no one else changes. The controller manager still empties the
	// namespaces of other tests, and it creates a ConfigMap in this one at first.
	namespace := controlplanetest.Namespace(t, cp)
	poll.Try(t, "the namespace has everything that controllers create in it", func(ctx context.Context) error {
		_, err := u.of(configMaps, namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps,clusterroles", "NAMESPACES": namespace})
	for n := range 200 {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()
	sub := subscribe(t, bus.URL)
	sub.awaitSnapshots(configMaps, gvr("rbac.authorization.k8s.io", "v1", "clusterroles"))
	sub.end()
	before := sub.total()
	if before < 200 {
		t.Fatalf("%d messages on the stream, want more than 200", before)
	}
	for range 3 {
		f.kill()
		f.start().idle()
	}
	f.stop()
	sub.end()
	if got := sub.total() - before; got != 0 {
		t.Errorf("%d messages were published by restarts, want 0", got)
	}
}

// TestARestartOfTwentyThousandObjects_Slow uses its own control plane, where no one else changes
// objects.
func TestARestartOfTwentyThousandObjects_Slow(t *testing.T) {
	const objects = 20_000
	bus := natsServer(t)
	cp := controlplanetest.New(t, controlplane.Options{})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	inParallel(t, objects, func(n int) { u.create(configMaps, namespace, configMap(fmt.Sprintf("c%05d", n), "1")) })
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	f.start().idle()
	sub := subscribe(t, bus.URL)
	sub.awaitSnapshots(configMaps)
	sub.end()
	before := sub.total()
	if want := objects + 3; before != want {
		t.Fatalf("%d messages on the stream, want %d: each object, two markers and the claim", before, want)
	}
	f.kill()
	f.start().idle()
	f.stop()
	sub.end()
	if got := sub.total() - before; got != 0 {
		t.Errorf("%d messages were published by the restart, want 0", got)
	}
}

func TestOnlyTheFirstSyncHasMarkers(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "configmaps"})
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.create(configMaps, namespace, configMap("early", "1"))
	f.start().idle()
	sub := subscribe(t, bus.URL)
	sub.awaitSnapshots(configMaps)
	early, late := subject(configMaps, namespace, "early"), subject(configMaps, namespace, "late")
	sub.awaitKinds(early, "snapshot")
	if got := sub.of(early)[0].attribute("cause"); got != "snapshot" {
		t.Errorf("cause %q, want snapshot", got)
	}
	markers := sub.of(marker(configMaps))
	for _, r := range sub.last() {
		if r.kind() == "snapshot" && (r.sequence < markers[0].sequence || r.sequence > markers[1].sequence) {
			t.Errorf("%s at %d is not between the markers at %d and %d", r.subject, r.sequence, markers[0].sequence, markers[1].sequence)
		}
	}
	data := decode(t, markers[1].data)
	if data["resource"] != "configmaps" || data["count"].(float64) < 1 {
		t.Errorf("the completed marker says %v", data)
	}
	f.kill()
	u.create(configMaps, namespace, configMap("late", "1"))
	f.start().idle()
	sub.awaitKinds(late, "created")
	if got := sub.of(late)[0].attribute("cause"); got != "reconcile" {
		t.Errorf("cause %q, want reconcile", got)
	}
	sub.end()
	if got, want := sub.kinds(marker(configMaps)), "started completed"; got != want {
		t.Errorf("markers %q, want %q", got, want)
	}
}

func TestChangesWhileTheForwarderIsDown(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "configmaps,namespaces,*.example.com"})
	u := newUser(t, cp)
	u.define("widgets", "Widget", "Namespaced")
	namespace := controlplanetest.Namespace(t, cp)
	doomed := u.create(gvr("", "v1", "namespaces"), "", "apiVersion: v1\nkind: Namespace\nmetadata: {generateName: doomed-}").GetName()
	for _, name := range []string{"deleted", "recreated", "changed", "same"} {
		u.create(configMaps, namespace, configMap(name, "1"))
	}
	u.create(configMaps, doomed, configMap("inside", "1"))
	u.create(widgets, namespace, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: gone}\nspec: {size: 1}")
	f.start().idle()
	sub := subscribe(t, bus.URL)
	widget := subject(widgets, namespace, "gone")
	sub.awaitKinds(widget, "snapshot")
	sub.awaitSnapshots(configMaps, gvr("", "v1", "namespaces"), widgets)

	f.kill()
	u.delete(configMaps, namespace, "deleted")
	u.delete(configMaps, namespace, "recreated")
	u.create(configMaps, namespace, configMap("recreated", "2"))
	u.label(configMaps, namespace, "changed", "yes")
	u.delete(gvr("", "v1", "namespaces"), "", doomed)
	u.delete(definitions, "", "widgets.example.com")
	f.start().idle()

	for name, want := range map[string]string{
		"deleted": "snapshot deleted", "recreated": "snapshot deleted created", "changed": "snapshot updated", "same": "snapshot",
	} {
		sub.awaitKinds(subject(configMaps, namespace, name), want)
	}
	sub.awaitKinds(subject(configMaps, doomed, "inside"), "snapshot deleted")
	sub.awaitKinds(subject(gvr("", "v1", "namespaces"), "", doomed), "snapshot deleted")
	sub.awaitKinds(widget, "snapshot deleted")
	for _, s := range []string{subject(configMaps, namespace, "deleted"), subject(configMaps, namespace, "recreated"), widget} {
		all := sub.of(s)
		deleted := all[1]
		if deleted.attribute("cause") != "reconcile" || deleted.attribute("finalstateunknown") != "" || string(deleted.data) != string(all[0].data) {
			t.Errorf("%s: the delete has cause %q, finalstateunknown %q and data %s, want the last state on the bus",
				s, deleted.attribute("cause"), deleted.attribute("finalstateunknown"), deleted.data)
		}
	}
	sub.end()
	sub.checkOrder()
	checkReplicaOf(t, u, sub, configMaps)
}

func TestObjectsOutsideTheScopeStay(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	one, two := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	u.create(configMaps, one, configMap("a", "1"))
	u.create(configMaps, two, configMap("b", "1"))
	u.create(gvr("", "v1", "serviceaccounts"), one, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}")
	wide := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "cm,sa", "NAMESPACES": one + "," + two})
	wide.start().idle()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(subject(configMaps, two, "b"), "snapshot")
	wide.stop()

	narrow := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "cm", "NAMESPACES": one, "LABEL_SELECTOR": "no=such", "CHECKPOINT_REFRESH": "1s"})
	narrow.start().idle()
	poll.Try(t, "the objects out of scope are counted", func(ctx context.Context) error {
		got, err := narrow.Metric(ctx, "kuberelay_out_of_scope_objects")
		if err == nil && got < 3 {
			err = fmt.Errorf("counted %v", got)
		}
		return err
	})
	narrow.stop()
	sub.end()
	for _, s := range []string{subject(configMaps, one, "a"), subject(configMaps, two, "b"), subject(gvr("", "v1", "serviceaccounts"), one, "robot")} {
		if got := sub.kinds(s); got != "snapshot" {
			t.Errorf("%s has %q, want it left alone", s, got)
		}
	}
}

func TestAForbiddenResourceIsNamedAndTheOthersGoOn(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.create(configMaps, namespace, configMap("a", "1"))
	role := u.create(gvr("rbac.authorization.k8s.io", "v1", "roles"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]`)
	u.create(gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]`)
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace})
	f.start().idle()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(subject(configMaps, namespace, "a"), "snapshot")
	poll.Try(t, "only services are forbidden", func(ctx context.Context) error {
		got, err := f.Metric(ctx, "kuberelay_informer_failing")
		if err == nil && got != 1 {
			err = fmt.Errorf("%v resources are failing", got)
		}
		return err
	})

	// Revoke the permissions while the forwarder runs. No delete may be published for the objects.
	if err := u.of(gvr("rbac.authorization.k8s.io", "v1", "roles"), namespace).Delete(t.Context(), role.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.kill()
	awaitAccess(t, cp, configMaps, namespace, false)
	f.start().awaitReason("access denied to all")
	poll.Try(t, "configmaps are forbidden", func(ctx context.Context) error {
		got, err := f.Metric(ctx, "kuberelay_informer_failing")
		if err == nil && got != 2 {
			err = fmt.Errorf("%v resources are failing", got)
		}
		return err
	})
	f.stop()
	sub.end()
	if got := sub.kinds(subject(configMaps, namespace, "a")); got != "snapshot" {
		t.Errorf("after RBAC was revoked: %q, want nothing deleted", got)
	}
}
