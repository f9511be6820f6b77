package informers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func forbiddenError(resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New("no"))
}

// pathNotFound returns client-go's error for a resource that the API server does not serve.
func pathNotFound() error {
	return apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "404 page not found", 0, true)
}

// TestEtcdIsRestoredUnnoticed_Slow verifies that an informer detects a restore of etcd after the
// restored cluster has made more changes than the restore lost. The API server then accepts the
// version of the old watch. Without a proof of the history, the indexer would show lost objects
// forever.
func TestEtcdIsRestoredUnnoticed_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	for name, change := range map[string]struct {
		lose  func(o objects, was *unstructured.Unstructured) *unstructured.Unstructured // returns the object that the watch shows next
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
			r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}})
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
			for range 50 { // more changes than the restore lost
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

// TestEtcdIsRestoredAndItsLastChangeRepeated_Slow verifies that repeating the last change after a
// restore does not prove the history. The last change that the watch showed is a delete, which is
// made again after the restore. This says nothing about other changes before it. Seed 104 of the
// torture suite lost an object in this way.
func TestEtcdIsRestoredAndItsLastChangeRepeated_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	elsewhere := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	was, kept := o.create("web", nil), o.create("kept", nil)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := cp.SnapshotEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	var g gate
	r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}})
	r.awaitView(t, "before", o.key("kept"), kept)
	for n := range 20 { // leaves versions for another change before the version of the delete
		elsewhere.create(fmt.Sprint("lost", n), nil)
	}
	o.delete("web")
	r.awaitView(t, "deleted", o.key("web"), nil, was)

	g.set(true)
	if err := cp.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	o.delete("web")
	fresh := o.create("fresh", nil)
	for n := range 50 {
		elsewhere.create(fmt.Sprint("made", n), nil)
	}
	g.set(false)
	r.awaitView(t, "made before the version that the watch had", o.key("fresh"), fresh)
}

// TestACutShowsNothingAgain verifies that a watch does not repeat changes after its connection was
// cut. Objects are created and deleted before the list or during the watch. An earlier version
// showed these changes again, because the watch resumed after the newest remaining object.
func TestACutShowsNothingAgain(t *testing.T) {
	cp := cluster.ControlPlane(t)
	for name, before := range map[string]bool{"before the list": true, "since": false} {
		t.Run(name, func(t *testing.T) {
			o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
			anchor := o.create("anchor", nil)
			passing := func() {
				for n := range 20 {
					o.create(fmt.Sprint("passing", n), nil)
					o.delete(fmt.Sprint("passing", n))
				}
			}
			if before {
				passing()
			}
			var g gate
			r := start(t, g.through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}})
			r.awaitView(t, "before", o.key("anchor"), anchor)
			if !before {
				passing()
				last := o.create("last", nil)
				r.awaitView(t, "the last", o.key("last"), last)
				o.delete("last")
				r.awaitView(t, "deleted", o.key("last"), nil, last)
			}
			r.mu.Lock()
			clear(r.enqueued)
			r.mu.Unlock()
			g.set(true)
			g.set(false)
			later := o.create("later", nil)
			r.awaitView(t, "later", o.key("later"), later)
			r.mu.Lock()
			defer r.mu.Unlock()
			for k := range r.enqueued {
				if strings.HasPrefix(k.Name, "passing") || k.Name == "last" {
					t.Errorf("%s is shown again", k)
				}
			}
		})
	}
}

// TestEtcdIsRestored verifies that a restore of etcd from a backup begins a new epoch. Versions go
// back, deleted objects exist again, and new objects are gone. Only a comparison can distinguish
// this from a watch that is behind. In the new epoch, all states count as later.
func TestEtcdIsRestored(t *testing.T) {
	cp := cluster.ControlPlane(t)
	o := newObjects(t, cp, configMaps, "ConfigMap", controlplanetest.Namespace(t, cp))
	gr := configMaps.GroupResource()
	kept, updated, deleted, recreated := o.create("kept", nil), o.create("updated", nil), o.create("deleted", nil), o.create("recreated", nil)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := cp.SnapshotEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps"}}, Namespaces: discovery.NamespaceSelection{Include: []string{o.namespace}}})
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
	poll.Try(t, "before, there is no difference", func(context.Context) error {
		got, err := r.reconcile(t, gr)
		if err == nil && got != (reconcile.Comparison{}) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})

	if err := cp.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	r.awaitView(t, "deleted, and there again", o.key("deleted"), deleted)
	r.awaitView(t, "made, and not there", o.key("made"), nil, made)
	if r.Epoch(gr) != 0 {
		t.Error("a new epoch began before a comparison")
	}
	poll.Try(t, "it is found that history went back", func(context.Context) error {
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
	poll.Try(t, "no difference is left", func(context.Context) error {
		got, err := r.reconcile(t, gr)
		if err == nil && got != (reconcile.Comparison{}) {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	if r.Epoch(gr) != 1 {
		t.Errorf("the epoch is %d, want 1", r.Epoch(gr))
	}
}
