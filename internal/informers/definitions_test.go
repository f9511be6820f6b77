package informers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// definition returns a CustomResourceDefinition of widgets. The first version is the storage
// version.
func definition(group string, namespaced bool, versions ...string) *unstructured.Unstructured {
	var served []any
	for n, v := range versions {
		served = append(served, map[string]any{
			"name": v, "served": true, "storage": n == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	scope := "Cluster"
	if namespaced {
		scope = "Namespaced"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": served,
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		},
	}}
}

// define creates a definition and returns the resource in its first version. It deletes the
// definition at the end of the test.
func define(t *testing.T, cp *controlplane.ControlPlane, group string, namespaced bool, versions ...string) schema.GroupVersionResource {
	t.Helper()
	client, _ := clients(t, cp.Config())
	definitions := client.Resource(discovery.DefinitionResource)
	if _, err := definitions.Create(t.Context(), definition(group, namespaced, versions...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := definitions.Delete(context.WithoutCancel(t.Context()), "widgets."+group, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Log(err)
		}
	})
	return schema.GroupVersionResource{Group: group, Version: versions[0], Resource: "widgets"}
}

// undefine deletes a definition and waits until it is gone.
func undefine(t *testing.T, cp *controlplane.ControlPlane, group string) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	definitions := client.Resource(discovery.DefinitionResource)
	if err := definitions.Delete(t.Context(), "widgets."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "the definition goes", func(context.Context) error {
		_, err := definitions.Get(t.Context(), "widgets."+group, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("widgets.%s still exists", group)
	})
}

// defineMany creates n definitions. It deletes the remaining ones at the end of the test.
func defineMany(t *testing.T, cp *controlplane.ControlPlane, group string, from, n int) (made []schema.GroupResource) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	definitions := client.Resource(discovery.DefinitionResource)
	for i := from; i < from+n; i++ {
		plural := fmt.Sprintf("widgets%03d", i)
		d := definition(group, true, "v1")
		d.SetName(plural + "." + group)
		names := map[string]any{"plural": plural, "singular": plural[:6] + plural[7:], "kind": "W" + plural[1:], "listKind": "W" + plural[1:] + "List"}
		_ = unstructured.SetNestedMap(d.Object, names, "spec", "names")
		if _, err := definitions.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		made = append(made, schema.GroupResource{Group: group, Resource: plural})
	}
	t.Cleanup(func() { undefineMany(t, cp, made) })
	return made
}

func undefineMany(t *testing.T, cp *controlplane.ControlPlane, all []schema.GroupResource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	client, _ := clients(t, cp.Config())
	for _, gr := range all {
		err := client.Resource(discovery.DefinitionResource).Delete(ctx, gr.String(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

func (r *running) watches(gr schema.GroupResource) bool {
	return slices.ContainsFunc(r.Status(), func(s health.Status) bool { return s.Resource.GroupResource() == gr })
}

// awaitStopped waits until no informer watches the resource.
func (r *running) awaitStopped(t *testing.T, gr schema.GroupResource) {
	t.Helper()
	poll.Try(t, "its informer stops", func(context.Context) error {
		if r.watches(gr) {
			return fmt.Errorf("%s is watched", gr)
		}
		return nil
	})
}

// TestADefinitionComesAndGoes verifies that the informer of a resource starts, stops and restarts
// when its definition is created, deleted and recreated, long before the next regular discovery.
// The deletes of the objects stay recorded after the informer has stopped. The informer may stop
// before its watch shows the objects that are deleted with the definition. The comparison finds them.
func TestADefinitionComesAndGoes(t *testing.T) {
	cp := cluster.ControlPlane(t)
	namespace := controlplanetest.Namespace(t, cp)
	const group = "comes.example.com"
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps", "*." + group}}})
	r.awaitSynced(t, configMaps.GroupResource())

	gvr := define(t, cp, group, true, "v1")
	o := newObjects(t, cp, gvr, "Widget", namespace)
	one, two := o.create("one", nil), o.create("two", nil)
	r.awaitView(t, "one", o.key("one"), one)
	r.awaitView(t, "two", o.key("two"), two)
	r.acknowledge(o.key("one"), ackedOf(one)) // the bus never receives two

	o.delete("two")
	r.awaitView(t, "two is gone", o.key("two"), nil, two)

	compared := 0
	r.await(t, "it is compared when it has synced", func() bool { compared = r.compare[gvr.GroupResource()]; return compared > 0 })
	undefine(t, cp, group)
	r.await(t, "it is compared when it is gone", func() bool { return r.compare[gvr.GroupResource()] > compared })
	r.awaitStopped(t, gvr.GroupResource())
	poll.Try(t, "the comparison", func(context.Context) error {
		got, err := r.reconcile(t, gvr.GroupResource())
		if err == nil && got.Waiting > 0 {
			err = fmt.Errorf("got %+v", got)
		}
		return err
	})
	r.awaitView(t, "one is gone", o.key("one"), nil, one)
	for _, c := range []struct {
		name string
		gone *unstructured.Unstructured
	}{{"one", one}, {"two", two}} {
		if v := r.Lookup(o.key(c.name)); v.Live != nil || !slices.Equal(uids(v.Tombstones), []string{string(c.gone.GetUID())}) {
			t.Errorf("%s: got %s, want nothing and its tombstone", c.name, describeView(v))
		}
	}

	define(t, cp, group, true, "v1")
	again := o.create("one", nil)
	r.awaitView(t, "recreated with its definition", o.key("one"), again, one)
}

// TestADefinitionMoves verifies that no object counts as deleted while the definition of its
// resource changes to another version.
func TestADefinitionMoves(t *testing.T) {
	cp := cluster.ControlPlane(t)
	const group = "moves.example.com"
	gvr := define(t, cp, group, true, "v1beta1")
	o := newObjects(t, cp, gvr, "Widget", controlplanetest.Namespace(t, cp))
	one := o.create("one", nil)
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"widgets." + group}}})
	r.awaitView(t, "in the old version", o.key("one"), one)
	r.acknowledge(o.key("one"), ackedOf(one))

	client, _ := clients(t, cp.Config())
	definitions := client.Resource(discovery.DefinitionResource)
	poll.Try(t, "the version is added", func(context.Context) error {
		old, err := definitions.Get(t.Context(), "widgets."+group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		old.Object["spec"] = definition(group, true, "v1beta1", "v1").Object["spec"]
		_, err = definitions.Update(t.Context(), old, metav1.UpdateOptions{})
		return err
	})
	r.await(t, "in the new version", func() bool {
		v := r.views[o.key("one")]
		return v.Live != nil && v.Live.APIVersion == group+"/v1" && v.Resource.Version == "v1"
	})
	one = o.touch(one, nil)
	r.awaitView(t, "updated", o.key("one"), one)

	poll.Try(t, "the version is removed", func(context.Context) error {
		old, err := definitions.Get(t.Context(), "widgets."+group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		old.Object["spec"] = definition(group, true, "v1beta1").Object["spec"]
		_, err = definitions.Update(t.Context(), old, metav1.UpdateOptions{})
		return err
	})
	r.await(t, "in the old version again", func() bool {
		v := r.views[o.key("one")]
		return v.Live != nil && v.Live.APIVersion == group+"/v1beta1" && v.Resource.Version == "v1beta1"
	})
	if r.hasBeenBuried(o.key("one")) {
		t.Error("the object had a tombstone")
	}
	if n := len(r.Status()); n != 1 {
		t.Errorf("%d informers, want 1", n)
	}
}

// TestADefinitionChangesItsScope verifies that a namespaced object counts as deleted after its
// definition was recreated as cluster-scoped.
func TestADefinitionChangesItsScope(t *testing.T) {
	cp := cluster.ControlPlane(t)
	const group = "scope.example.com"
	gvr := define(t, cp, group, true, "v1")
	gr := gvr.GroupResource()
	o := newObjects(t, cp, gvr, "Widget", controlplanetest.Namespace(t, cp))
	one := o.create("one", nil)
	undefine(t, cp, group)
	define(t, cp, group, false, "v1")
	other := newObjects(t, cp, gvr, "Widget", "")
	now := other.create("one", nil)

	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"widgets." + group}}})
	r.acknowledge(o.key("one"), ackedOf(one)) // an event from before the change
	r.awaitView(t, "cluster-scoped", other.key("one"), now)
	r.awaitSynced(t, gr)
	if got, err := r.reconcile(t, gr); got != (reconcile.Comparison{Deleted: 1}) || err != nil {
		t.Errorf("got %+v, error %v; want the namespaced one deleted", got, err)
	}
	r.awaitView(t, "namespaced", o.key("one"), nil, one)
}
