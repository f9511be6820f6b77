package informers

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kuberelay/kuberelay/internal/controlplane"
	"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/internal/event"
)

// allow lets the user «reader» list and watch a resource until the end of the test.
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
}

// TestForbidden: what is forbidden holds nothing else up, is named, is concluded
// nothing from, and starts by itself when it is allowed. The user may not read
// CustomResourceDefinitions either.
func TestForbidden(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	allowed := newObjects(t, cp, configMaps, "ConfigMap", namespace)
	services := configMaps
	services.Resource = "endpoints"
	forbidden := newObjects(t, cp, services, "Endpoints", namespace)
	one, two := allowed.create("one", nil), forbidden.create("two", nil)
	allow(t, cp, "configmaps")

	r := start(t, cp.ConfigFor("reader"), Config{Selection: Selection{Include: []string{"configmaps", "endpoints"}}})
	r.acknowledge(forbidden.key("two"), ackedOf(two))
	r.acknowledge(forbidden.key("gone"), live("G", "1"))
	r.awaitView(t, "what is allowed", allowed.key("one"), one)
	poll(t, "ready without what is forbidden", r.Ready)
	for _, st := range r.Status() {
		if want := st.Resource.Resource == "endpoints"; apierrors.IsForbidden(st.Failing) != want || st.Synced == want {
			t.Errorf("got %+v, want forbidden %v", st, want)
		}
	}
	if got, err := r.reconcile(t, services.GroupResource()); got != (Comparison{Waiting: 2}) || err != nil {
		t.Errorf("of what is forbidden: got %+v, error %v; want no conclusion", got, err)
	}
	r.mu.Lock()
	if r.compare[services.GroupResource()] != 0 {
		t.Error("what is forbidden is to be compared")
	}
	r.mu.Unlock()

	allow(t, cp, "endpoints")
	r.awaitView(t, "what was forbidden", forbidden.key("two"), two)
	r.awaitSynced(t, services.GroupResource())
	for _, st := range r.Status() {
		if st.Failing != nil {
			t.Errorf("%s fails still: %v", st.Resource.Resource, st.Failing)
		}
	}
	if got, err := r.reconcile(t, services.GroupResource()); got != (Comparison{Deleted: 1}) || err != nil {
		t.Errorf("when it is allowed: got %+v, error %v; want the one that is gone deleted", got, err)
	}
}

// TestTheAPIServerIsKilled and comes back: nothing is gone, and nothing is missed
// that happened around it.
func TestTheAPIServerIsKilled(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	kept, updated, deleted := o.create("kept", nil), o.create("updated", nil), o.create("deleted", nil)
	r := start(t, cp.Config(), Config{Selection: Selection{Include: []string{"configmaps"}}, Rediscover: 100 * time.Millisecond})
	r.awaitView(t, "kept", o.key("kept"), kept)
	r.awaitView(t, "updated", o.key("updated"), updated)
	r.awaitView(t, "deleted", o.key("deleted"), deleted)
	r.acknowledge(o.key("kept"), ackedOf(kept))

	updated = o.touch(updated, nil)
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	poll(t, "its absence is noticed", func() error {
		if st := r.Status(); len(st) == 1 && st[0].Failing != nil {
			return nil
		}
		return errors.New("no informer fails")
	})
	if _, err := r.reconcile(t, configMaps.GroupResource()); err != nil {
		t.Errorf("nothing is in doubt, so nothing need be asked: %v", err)
	}
	r.acknowledge(o.key("never"), live("N", "1"))
	if got, err := r.reconcile(t, configMaps.GroupResource()); got != (Comparison{}) || err == nil {
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

// TestTheEndWithoutAnAPIServer: Run returns although every informer waits for one.
func TestTheEndWithoutAnAPIServer(t *testing.T) {
	cp := cluster.ControlPlane(t)
	r := start(t, cp.Config(), Config{Selection: Selection{Include: []string{"configmaps"}}})
	r.awaitSynced(t, configMaps.GroupResource())
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	poll(t, "its absence is noticed", func() error {
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

// TestTheWatchExpires: the connection is cut, objects change, and etcd is compacted,
// so that the API server cannot tell what has happened since. What is found
// missing then was really deleted.
func TestTheWatchExpires(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	was := map[string]*unstructured.Unstructured{}
	names := []string{"kept", "updated", "deleted", "recreated"}
	for _, name := range names {
		was[name] = o.create(name, nil)
	}
	var g gate
	r := start(t, g.through(cp.Config()), Config{Selection: Selection{Include: []string{"configmaps"}}})
	for _, name := range names {
		r.awaitView(t, name, o.key(name), was[name])
	}

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
	if err := cp.KillAPIServer(); err != nil { // its watch cache would know all
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
	if last := r.view(o.key("deleted")).Tombstones[0].Object; last == nil || last.Body == nil {
		t.Error("deleted: the last state is not known")
	}
	for _, name := range []string{"kept", "updated", "made", "passing"} {
		if r.hasBeenBuried(o.key(name)) {
			t.Errorf("%s had a tombstone", name)
		}
	}
}

// TestEtcdIsRestoredUnnoticed: before the informer is connected again, the restored
// cluster has made more changes than were lost. The API server then goes on with
// the old watch as if nothing had happened, so that the indexer would show for
// ever what was lost.
func TestEtcdIsRestoredUnnoticed(t *testing.T) {
	cp := cluster.ControlPlane(t)
	for name, change := range map[string]struct {
		lose  func(o objects, was *unstructured.Unstructured) *unstructured.Unstructured // gives what the watch shows then
		shows bool
	}{
		"an update": {func(o objects, was *unstructured.Unstructured) *unstructured.Unstructured { return o.touch(was, nil) }, true},
		"a create":  {func(o objects, _ *unstructured.Unstructured) *unstructured.Unstructured { return o.create("made", nil) }, true},
		"a delete": {func(o objects, was *unstructured.Unstructured) *unstructured.Unstructured {
			o.delete("web")
			return was
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
			elsewhere := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
			was, busy := o.create("web", nil), elsewhere.create("busy", nil)
			o.create("older", nil)
			backup := filepath.Join(t.TempDir(), "backup")
			if err := cp.SnapshotEtcd(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			var g gate
			r := start(t, g.through(cp.Config()), Config{Selection: Selection{Include: []string{"configmaps"}}, Namespaces: []string{o.namespace}})
			r.awaitView(t, "before", o.key("web"), was)
			lost := change.lose(o, was)
			if change.shows {
				r.awaitView(t, "lost", o.key(lost.GetName()), lost)
			} else {
				r.awaitView(t, "lost", o.key(lost.GetName()), nil, lost)
			}

			g.set(true)
			if err := cp.RestoreEtcd(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			for range 50 { // more than were lost
				busy = elsewhere.touch(busy, nil)
			}
			g.set(false)
			r.awaitView(t, "as it was", o.key("web"), was)
			if lost.GetName() != "web" {
				r.awaitView(t, "never made", o.key(lost.GetName()), nil, lost)
			}
		})
	}
}

// TestAnOutageIsNoReasonToList: where the last known change is there still, the
// watch goes on. Where it is not, or nobody can say, a list is always right.
func TestAnOutageIsNoReasonToList(t *testing.T) {
	removed := object("Z", "9")
	removed.Name = "removed"
	for name, c := range map[string]struct {
		certain bool // no outage
		now     map[string]*unstructured.Unstructured
		err     error
		deleted bool // a delete was reported
		want    func(error) bool
	}{
		"no outage":              {certain: true, want: isNil},
		"nothing has changed":    {now: map[string]*unstructured.Unstructured{"web": stored("A", "5")}, want: isNil},
		"deleted, and still so":  {now: map[string]*unstructured.Unstructured{"web": stored("A", "5")}, deleted: true, want: isNil},
		"deleted, and recreated": {now: map[string]*unstructured.Unstructured{"web": stored("A", "5"), "removed": stored("Y", "12")}, deleted: true, want: isNil},
		"left the selection":     {now: map[string]*unstructured.Unstructured{"web": stored("A", "5"), "removed": stored("Z", "9")}, deleted: true, want: isNil},
		"deleted, and back":      {now: map[string]*unstructured.Unstructured{"web": stored("A", "5"), "removed": stored("Z", "4")}, deleted: true, want: apierrors.IsResourceExpired},
		"an earlier version":     {now: map[string]*unstructured.Unstructured{"web": stored("A", "4")}, want: apierrors.IsResourceExpired},
		"a later version":        {now: map[string]*unstructured.Unstructured{"web": stored("A", "6")}, want: apierrors.IsResourceExpired},
		"another UID":            {now: map[string]*unstructured.Unstructured{"web": stored("B", "5")}, want: apierrors.IsResourceExpired},
		"gone":                   {want: apierrors.IsResourceExpired},
		"it may not be read":     {err: forbiddenError("configmaps", "web"), want: apierrors.IsResourceExpired},
		"it cannot be read":      {err: apierrors.NewInternalError(errors.New("no answer")), want: apierrors.IsInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{Dynamic: stubCluster{get: func(_ schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
				if o := c.now[name]; o != nil || c.err != nil {
					return o, c.err
				}
				return nil, notFound()
			}}}, testResource)
			older := object("O", "3")
			older.Name = "older"
			b.index(older)
			b.index(object("A", "5"))
			i := b.watched.informers[""]
			if !c.certain {
				b.watchFailed(i, errors.New("connection refused"))
			}
			if c.deleted {
				b.delete(removed)
			}
			if err := b.sameHistory(t.Context(), i); !c.want(err) {
				t.Errorf("got %v", err)
			}
			i.listed()
			if err := b.sameHistory(t.Context(), i); err != nil {
				t.Errorf("after a list: got %v", err)
			}
		})
	}
}

func isNil(err error) bool { return err == nil }

// TestEtcdIsRestored from a backup: versions go back, what was deleted is there,
// what was made is not. Only a comparison can tell it from a watch that is behind;
// then a new epoch begins, in which all of it counts as later.
func TestEtcdIsRestored(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	gr := configMaps.GroupResource()
	kept, updated, deleted, recreated := o.create("kept", nil), o.create("updated", nil), o.create("deleted", nil), o.create("recreated", nil)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := cp.SnapshotEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	r := start(t, cp.Config(), Config{Selection: Selection{Include: []string{"configmaps"}}, Namespaces: []string{o.namespace}})
	later := o.touch(updated, nil)
	o.delete("deleted")
	o.delete("recreated")
	second := o.create("recreated", nil)
	made := o.create("made", nil)
	for name, u := range map[string]*unstructured.Unstructured{"kept": kept, "updated": later, "recreated": second, "made": made} {
		r.await(t, name, func() bool {
			v := r.views[o.key(name)].Live
			return v != nil && v.ResourceVersion == u.GetResourceVersion()
		})
		r.acknowledge(o.key(name), ackedOf(u))
	}
	gone := event.Acked{UID: string(deleted.GetUID()), ResourceVersion: made.GetResourceVersion(), Deleted: true}
	r.acknowledge(o.key("deleted"), gone)
	if got, err := r.reconcile(t, gr); got != (Comparison{}) || err != nil {
		t.Fatalf("before: got %+v, error %v; want no difference", got, err)
	}

	if err := cp.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	r.awaitView(t, "deleted, and there again", o.key("deleted"), deleted)
	r.awaitView(t, "made, and not there", o.key("made"), nil, made)
	if r.Epoch() != 0 {
		t.Error("a new epoch has begun unasked")
	}
	poll(t, "it is found that history went back", func() error {
		got, err := r.reconcile(t, gr)
		if err == nil && !got.Restored {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	want := map[string]*unstructured.Unstructured{"kept": kept, "updated": updated, "deleted": deleted, "recreated": recreated}
	for name, u := range want {
		r.await(t, name+" in the new epoch", func() bool {
			v := r.views[o.key(name)]
			return v.Epoch == 1 && v.Live != nil && string(v.Live.UID) == string(u.GetUID()) && v.Live.ResourceVersion == u.GetResourceVersion()
		})
	}
	for name, u := range want {
		a := ackedOf(u)
		a.Epoch = 1
		r.acknowledge(o.key(name), a)
	}
	r.acknowledge(o.key("made"), event.Acked{UID: string(made.GetUID()), ResourceVersion: made.GetResourceVersion(), Deleted: true, Epoch: 1})
	poll(t, "no difference is left", func() error {
		got, err := r.reconcile(t, gr)
		if err == nil && got != (Comparison{}) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	if r.Epoch() != 1 {
		t.Errorf("the epoch is %d, want 1", r.Epoch())
	}
}
