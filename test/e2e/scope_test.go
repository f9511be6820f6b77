package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// team sets the label team of a namespace.
func (u *user) team(namespace, team string) {
	u.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"team":%q}}}`, team)
	if _, err := u.of(gvr("", "v1", "namespaces"), "").Patch(u.t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		u.t.Fatal(err)
	}
}

// verifyClean verifies that "forwarder verify" finds no problem.
func (f *forwarder) verifyClean() {
	f.t.Helper()
	if code, stdout, stderr := f.run("verify", settle); code != 0 {
		f.t.Errorf("verify: exit code %d\n%s\n%.2000s", code, stdout, stderr)
	}
}

// TestNamespacesChangeLabels_Slow verifies that the selection follows the labels of namespaces, both
// while the forwarder runs and while it is down. Up to ten namespaces have their own watches. With
// more, one watch of all namespaces is used.
func TestNamespacesChangeLabels_Slow(t *testing.T) {
	for name, others := range map[string]int{"few": 0, "many": 11} {
		t.Run(name, func(t *testing.T) {
			bus := natsServer(t)
			cp := cluster.ControlPlane(t)
			u := newUser(t, cp)
			stays, moves := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
			team := "t-" + stays
			for range others {
				u.team(controlplanetest.Namespace(t, cp), team)
			}
			u.team(stays, team)
			u.create(configMaps, stays, configMap("a", "1"))
			u.create(configMaps, moves, configMap("b", "1"))
			a, b := subject(configMaps, stays, "a"), subject(configMaps, moves, "b")
			f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACE_SELECTOR": "team=" + team})
			f.start().idle()
			sub := subscribe(t, bus.URL)
			sub.awaitKinds(a, "snapshot")
			if got := sub.kinds(b); got != "" {
				t.Errorf("an unselected object has the events %q", got)
			}

			u.team(moves, team)
			sub.awaitKinds(b, "created")
			u.team(moves, "other")
			sub.awaitKinds(b, "created deselected")
			u.team(moves, team)
			sub.awaitKinds(b, "created deselected created")
			u.label(configMaps, moves, "b", "2")
			sub.awaitKinds(b, "created deselected created updated")
			all := sub.of(b)
			if string(all[1].data) != string(all[0].data) || string(all[2].data) != string(all[0].data) {
				t.Errorf("deselected with %s and again with %s, want %s", all[1].data, all[2].data, all[0].data)
			}
			f.verifyClean()

			// Repeat the changes while no forwarder runs.
			f.kill()
			u.team(moves, "other")
			f.start().idle()
			sub.awaitKinds(b, "created deselected created updated deselected")
			f.verifyClean()
			u.delete(configMaps, moves, "b")
			f.kill()
			u.create(configMaps, moves, configMap("b", "again"))
			u.team(moves, team)
			f.start().idle()
			sub.awaitKinds(b, "created deselected created updated deselected created")
			sub.end()
			if got := sub.kinds(a); got != "snapshot" {
				t.Errorf("an object that was always selected has %q", got)
			}
			sub.checkOrder()
			sub.checkIDs()
			f.verifyClean()
		})
	}
}

// checkIDs verifies that no two events of an object have the same id.
func (s *subscriber) checkIDs() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, all := range s.events {
		seen := map[string]uint64{}
		for _, r := range all {
			id := r.attribute("id")
			if at, ok := seen[id]; ok {
				s.t.Errorf("%s: id %s at %d and again at %d", subject, id, at, r.sequence)
			}
			seen[id] = r.sequence
		}
	}
}

// TestOnDeselectPublish_Slow verifies that, with ON_DESELECT=publish, objects that only an earlier
// configuration selected receive a deselected event.
func TestOnDeselectPublish_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	one, two := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	u.create(configMaps, one, configMap("a", "1"))
	u.create(configMaps, two, configMap("b", "1"))
	u.create(configMaps, one, configMap("unlabeled", "1"))
	u.label(configMaps, one, "a", "x")
	serviceAccounts := gvr("", "v1", "serviceaccounts")
	u.create(serviceAccounts, one, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}")
	wide := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "cm,sa", "NAMESPACES": one + "," + two})
	wide.start().idle()
	sub := subscribe(t, bus.URL)
	left := []string{subject(configMaps, two, "b"), subject(configMaps, one, "unlabeled"), subject(serviceAccounts, one, "robot")}
	for _, s := range append(left, subject(configMaps, one, "a")) {
		sub.awaitKinds(s, "snapshot")
	}
	sub.awaitSnapshots(configMaps, serviceAccounts)
	wide.stop()

	narrow := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "cm", "NAMESPACES": one, "LABEL_SELECTOR": "changed", "ON_DESELECT": "publish",
	})
	narrow.start().idle()
	for _, s := range left {
		sub.awaitKinds(s, "snapshot deselected")
		if all := sub.of(s); string(all[1].data) != string(all[0].data) || all[1].attribute("cause") != "reconcile" {
			t.Errorf("%s: deselected with cause %s and %s, want the last state", s, all[1].attribute("cause"), all[1].data)
		}
	}
	narrow.verifyClean()
	narrow.stop()
	wide.start().idle()
	for _, s := range left {
		sub.awaitKinds(s, "snapshot deselected created")
	}
	sub.end()
	if got := sub.kinds(subject(configMaps, one, "a")); got != "snapshot" {
		t.Errorf("an object that was always selected has %q", got)
	}
	sub.checkOrder()
	sub.checkIDs()
	wide.verifyClean()
}

// TestFollowReferences verifies that owners of selected objects are published too, and that events
// name the owner at the top of the chain. An owner is deselected when no selected object refers to
// it anymore. The same is verified for references of custom resources.
func TestFollowReferences(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	replicaSets, templates := gvr("apps", "v1", "replicasets"), gvr("", "v1", "podtemplates")
	const pod = `{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`
	top := u.create(templates, namespace, "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: top}\ntemplate: "+pod)
	owned := func(kind, name, uid string) string {
		apiVersion := map[string]string{"PodTemplate": "v1", "ReplicaSet": "apps/v1"}[kind]
		return fmt.Sprintf("[{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}]", apiVersion, kind, name, uid)
	}
	set := func(name string) string {
		return "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: " + name + ", ownerReferences: " + owned("PodTemplate", "top", string(top.GetUID())) +
			"}\nspec: {replicas: 0, selector: {matchLabels: {a: b}}, template: " + pod + "}"
	}
	middle := u.create(replicaSets, namespace, set("middle"))
	u.create(replicaSets, namespace, set("other"))
	bottom := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, ownerReferences: " + owned("ReplicaSet", "middle", string(middle.GetUID())) + "}"
	u.create(configMaps, namespace, fmt.Sprintf(bottom, "bottom"))
	u.create(configMaps, namespace, configMap("alone", "1"))
	poll.Try(t, "the controller has written the status of the ReplicaSet", func(ctx context.Context) error {
		o, err := u.of(replicaSets, namespace).Get(ctx, "middle", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); n < o.GetGeneration() {
			return errors.New("it has not")
		}
		return nil
	})
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "FOLLOW": "ownerReferences",
	})
	f.start().idle()
	sub := subscribe(t, bus.URL)
	m, tt, b := subject(replicaSets, namespace, "middle"), subject(templates, namespace, "top"), subject(configMaps, namespace, "bottom")
	sub.awaitKinds(b, "snapshot")
	sub.awaitKinds(m, "snapshot")
	sub.awaitKinds(tt, "snapshot")
	if got := sub.of(b)[0]; got.attribute("ownerkind") != "PodTemplate" || got.attribute("ownername") != "top" {
		t.Errorf("the top of its owners is %s %s", got.attribute("ownerkind"), got.attribute("ownername"))
	}
	alone := subject(configMaps, namespace, "alone")
	sub.awaitKinds(alone, "snapshot")
	if got := sub.of(alone)[0]; got.attribute("ownerkind") != "" {
		t.Errorf("an object without an owner has one: %v", got)
	}
	f.verifyClean()

	u.label(replicaSets, namespace, "middle", "2")
	sub.awaitKinds(m, "snapshot updated")
	u.delete(configMaps, namespace, "bottom")
	sub.awaitKinds(m, "snapshot updated deselected")
	sub.awaitKinds(tt, "snapshot deselected")
	f.verifyClean()
	u.create(configMaps, namespace, fmt.Sprintf(bottom, "again"))
	sub.awaitKinds(m, "snapshot updated deselected created")
	sub.awaitKinds(tt, "snapshot deselected created")
	f.kill()
	f.start().idle()
	sub.end()
	if got := sub.kinds(subject(replicaSets, namespace, "other")); got != "" {
		t.Errorf("an object unrelated to selected ones has %q", got)
	}
	if got := sub.kinds(m) + ", " + sub.kinds(tt); got != "snapshot updated deselected created, snapshot deselected created" {
		t.Errorf("a restart published an event: %s", got)
	}
	sub.checkOrder()
	sub.checkIDs()
	f.verifyClean()
}

// TestRBACForOneNamespace verifies that a service account that may read only one of two selected
// namespaces publishes the objects of that namespace, and that the log names the other namespace.
func TestRBACForOneNamespace(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	may, mayNot := controlplanetest.Namespace(t, cp), controlplanetest.Namespace(t, cp)
	u.create(configMaps, may, configMap("a", "1"))
	u.create(configMaps, mayNot, configMap("b", "1"))
	u.create(gvr("rbac.authorization.k8s.io", "v1", "roles"), may, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]`)
	bind := func(namespace string) {
		u.create(gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]`)
	}
	bind(may)
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": may + "," + mayNot})
	f.start().ready()
	sub := subscribe(t, bus.URL)
	sub.awaitKinds(subject(configMaps, may, "a"), "snapshot")
	poll.Try(t, "the log names the forbidden namespace", func(context.Context) error {
		for line := range strings.Lines(f.log()) {
			var said struct{ Msg, Namespace, Err string }
			if json.Unmarshal([]byte(line), &said) == nil && said.Namespace == mayNot && strings.Contains(said.Err, "may not list it in the namespace") {
				return nil
			}
		}
		return errors.New("not in the log")
	})
	if got := sub.kinds(subject(configMaps, mayNot, "b")); got != "" {
		t.Errorf("an object in the forbidden namespace has the events %q", got)
	}
	if strings.Contains(f.log(), `configmaps is forbidden: User`) {
		t.Error("the forwarder sent a request that it knew to be forbidden")
	}
}

// TestDeletedAndThenDeselected verifies that an object that is deleted while the forwarder is down
// receives a deleted event, even if its namespace is no longer selected afterward.
func TestDeletedAndThenDeselected(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	team := "t-" + namespace
	u.team(namespace, team)
	u.create(configMaps, namespace, configMap("gone", "1"))
	u.create(configMaps, namespace, configMap("there", "1"))
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACE_SELECTOR": "team=" + team})
	f.start().idle()
	sub := subscribe(t, bus.URL)
	gone, there := subject(configMaps, namespace, "gone"), subject(configMaps, namespace, "there")
	sub.awaitKinds(gone, "snapshot")
	sub.awaitKinds(there, "snapshot")
	f.stop()
	u.delete(configMaps, namespace, "gone")
	u.team(namespace, "other") // no object is selected now
	f.start().idle()
	sub.awaitKinds(gone, "snapshot deleted")
	sub.awaitKinds(there, "snapshot deselected")
	f.verifyClean()
}

// TestRestartKeepsReferences verifies that an object that is still referred to isn't deselected by
// a restart, or by the switch from one watch per namespace to one watch of all namespaces.
func TestRestartKeepsReferences(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	team := "t-" + namespace
	u.team(namespace, team)
	classes := gvr("scheduling.k8s.io", "v1", "priorityclasses")
	class := u.create(classes, "", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: "+namespace+"}\nvalue: 1")
	owned := func(name string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, ownerReferences: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, name: %s, uid: %s}]}",
			name, class.GetName(), class.GetUID())
	}
	u.create(configMaps, namespace, owned("a"))
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACE_SELECTOR": "team=" + team, "FOLLOW": "ownerReferences", "ON_DESELECT": "publish",
	})
	f.start().idle()
	sub := subscribe(t, bus.URL)
	followed := subject(classes, "", class.GetName())
	sub.awaitKinds(followed, "snapshot")
	for n := range 3 {
		f.stop()
		f.start().idle()
		name := fmt.Sprint("restart-", n)
		u.create(configMaps, namespace, owned(name))
		sub.awaitKinds(subject(configMaps, namespace, name), "created")
	}
	var last string
	for range 21 { // more than twice the maximum number of namespaces with their own watches
		last = controlplanetest.Namespace(t, cp)
		u.team(last, team)
	}
	u.create(configMaps, last, configMap("b", "1"))
	sub.awaitKinds(subject(configMaps, last, "b"), "created")
	f.idle()
	sub.end()
	if got := sub.kinds(followed); got != "snapshot" {
		t.Errorf("an object that was always referred to has %q", got)
	}
	f.verifyClean()
}
