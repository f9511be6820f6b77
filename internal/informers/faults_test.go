package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// allow lets the user "reader" list and watch a resource until the end of the test.
func allow(t *testing.T, cp *controlplane.ControlPlane, resource string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "readers-of-" + resource}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reader, _ := clients(t, cp.ConfigFor("reader"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := errors.Join(
			client.RbacV1().ClusterRoleBindings().Delete(ctx, name.Name, metav1.DeleteOptions{}),
			client.RbacV1().ClusterRoles().Delete(ctx, name.Name, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
		poll.Try(t, "the authorizer hears of it", func(context.Context) error {
			_, err := reader.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{})
			if apierrors.IsForbidden(err) {
				return nil
			}
			return fmt.Errorf("want forbidden, got %w", err)
		})
	})
}

// TestForbidden verifies that a forbidden resource does not block other resources, that the status
// names it, and that no comparison concludes anything about it. Its informer starts when access is
// granted. The user also may not read CustomResourceDefinitions.
func TestForbidden(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	allowed := newObjects(t, cp, configMaps, "ConfigMap", namespace)
	services := configMaps
	services.Resource = "endpoints"
	forbidden := newObjects(t, cp, services, "Endpoints", namespace)
	one, two := allowed.create("one", nil), forbidden.create("two", nil)
	allow(t, cp, "configmaps")

	r := start(t, cp.ConfigFor("reader"), Config{Selection: discovery.Selection{Include: []string{"configmaps", "endpoints"}}})
	r.acknowledge(forbidden.key("two"), ackedOf(two))
	r.acknowledge(forbidden.key("gone"), live("G", "1"))
	r.awaitView(t, "what is allowed", allowed.key("one"), one)
	// A refused informer fails until its watch is open. That is after its list, and after the informer has synced.
	settles := func(what string, forbidden ...string) {
		t.Helper()
		poll.Try(t, what, func(context.Context) error {
			if err := r.Ready(); err != nil {
				return err
			}
			for _, st := range r.Status() {
				if want := slices.Contains(forbidden, st.Resource.Resource); apierrors.IsForbidden(st.Failing) != want || st.Synced == want || !want && st.Failing != nil {
					return fmt.Errorf("got %+v, want forbidden %v", st, want)
				}
			}
			return nil
		})
	}
	settles("ready without what is forbidden", "endpoints")
	if got, err := r.reconcile(t, services.GroupResource()); got != (reconcile.Comparison{Waiting: 2}) || err != nil {
		t.Errorf("access denied: got %+v, error %v; want no conclusion", got, err)
	}
	r.mu.Lock()
	if r.compare[services.GroupResource()] != 0 {
		t.Error("the Set requested a comparison of a forbidden resource")
	}
	r.mu.Unlock()

	allow(t, cp, "endpoints")
	r.awaitView(t, "what was forbidden", forbidden.key("two"), two)
	r.awaitSynced(t, services.GroupResource())
	settles("nothing is forbidden")
	if got, err := r.reconcile(t, services.GroupResource()); got != (reconcile.Comparison{Deleted: 1}) || err != nil {
		t.Errorf("access granted: got %+v, error %v; want one delete", got, err)
	}
}

// TestRefusedFromTheStart verifies that Run stops everything and returns if the credentials are
// wrong, because waiting does not help.
func TestRefusedFromTheStart(t *testing.T) {
	config := cluster.ControlPlane(t).Config()
	config.BearerToken = "wrong"
	r := newRunning(t, config, Config{Selection: discovery.Selection{Include: []string{"configmaps"}}})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	select {
	case err := <-ended:
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, want unauthorized", err)
		}
	case <-time.After(patience):
		t.Error("Run does not return")
	}
}

// TestTheAPIServerIsKilled verifies that after a restart of the API server, no existing object
// counts as deleted and no change around the restart is missed.
func TestTheAPIServerIsKilled(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	kept, updated, deleted := o.create("kept", nil), o.create("updated", nil), o.create("deleted", nil)
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Rediscover: 100 * time.Millisecond})
	r.awaitView(t, "kept", o.key("kept"), kept)
	r.awaitView(t, "updated", o.key("updated"), updated)
	r.awaitView(t, "deleted", o.key("deleted"), deleted)
	r.acknowledge(o.key("kept"), ackedOf(kept))

	updated = o.touch(updated, nil)
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "its absence is noticed", func(context.Context) error {
		if st := r.Status(); len(st) == 1 && st[0].Failing != nil {
			return nil
		}
		return errors.New("no informer fails")
	})
	if _, err := r.reconcile(t, configMaps.GroupResource()); err != nil {
		t.Errorf("the bus and the informers agree, but the comparison failed: %v", err)
	}
	r.acknowledge(o.key("never"), live("N", "1"))
	if got, err := r.reconcile(t, configMaps.GroupResource()); got != (reconcile.Comparison{}) || err == nil {
		t.Errorf("got %+v, error %v; want no conclusion and an error", got, err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.delete("deleted")
	made := o.create("made", nil)

	r.awaitView(t, "updated before", o.key("updated"), updated)
	r.awaitView(t, "deleted after", o.key("deleted"), nil, deleted)
	r.awaitView(t, "made after", o.key("made"), made)
	if v := r.Lookup(o.key("kept")); describeView(v) != string(kept.GetUID())+"."+kept.GetResourceVersion() {
		t.Errorf("kept: got %s", describeView(v))
	}
	for _, name := range []string{"kept", "updated", "made", "never"} {
		if r.hasBeenBuried(o.key(name)) {
			t.Errorf("%s had a tombstone", name)
		}
	}
}

// TestTheEndWithoutAnAPIServer verifies that Run returns even while every informer waits for the API
// server.
func TestTheEndWithoutAnAPIServer(t *testing.T) {
	cp := cluster.ControlPlane(t)
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}})
	r.awaitSynced(t, configMaps.GroupResource())
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "its absence is noticed", func(context.Context) error {
		if r.Status()[0].Failing != nil {
			return nil
		}
		return errors.New("the informer does not fail")
	})
	r.stopRunning(t)
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestTheWatchExpires_Slow verifies the list that follows an expired watch. The connection is cut,
// objects change, and etcd is compacted, so the API server can no longer return these changes. An
// object that the list does not contain was really deleted.
func TestTheWatchExpires_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	was := map[string]*unstructured.Unstructured{}
	names := []string{"updated", "deleted", "recreated", "kept"}
	for _, name := range names {
		was[name] = o.create(name, nil)
	}
	var g gate
	r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}})
	for _, name := range names {
		r.awaitView(t, name, o.key(name), was[name])
	}
	// After the watch has shown a change, the informer asks the API server whether the history
	// still contains that change. Without such a change, it would list again without asking.
	was["kept"] = o.touch(was["kept"], nil)
	r.awaitView(t, "kept", o.key("kept"), was["kept"])

	g.set(true)
	updated := o.touch(was["updated"], nil)
	o.delete("deleted")
	o.delete("recreated")
	recreated := o.create("recreated", nil)
	made := o.create("made", nil)
	o.create("passing", nil)
	o.delete("passing")
	if err := cp.CompactEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.KillAPIServer(); err != nil { // its watch cache still contains all changes
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.set(false)

	r.awaitView(t, "updated", o.key("updated"), updated)
	r.awaitView(t, "deleted", o.key("deleted"), nil, was["deleted"])
	r.awaitView(t, "recreated", o.key("recreated"), recreated, was["recreated"])
	r.awaitView(t, "made", o.key("made"), made)
	if last := r.view(o.key("deleted")).Tombstones[0].Object; last == nil || last.Body.None() {
		t.Error("deleted: the last state is not known")
	}
	for _, name := range []string{"kept", "updated", "made", "passing"} {
		if r.hasBeenBuried(o.key(name)) {
			t.Errorf("%s had a tombstone", name)
		}
	}
}
