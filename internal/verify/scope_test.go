package verify

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestHostileNames verifies that verify handles names that contain the syntax of selectors,
// subjects, escapes and terminals.
func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	w.opts.Resources = []string{"roles"}
	names := []string{"system:node", "a,b=c\\d", "two words", "\x1b[31m", "100", "metadata.name", "*", ">", "é", "a\nb", "#?&", "=2E", "\"quoted\""}
	for _, name := range names {
		w.publish(event.Created, roles, w.create(roles, name, nil))
	}
	want(t, w.found())
	var missing []string
	for _, name := range names {
		u, err := w.client(roles).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.update(roles, u, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
		missing = append(missing, "stale "+name+": the bus is behind")
	}
	slices.Sort(missing)
	got := w.found()
	slices.Sort(got)
	want(t, got, missing...)
}

// TestSelected verifies that verify compares only the objects that label and field selectors
// select. An object on the bus that they don't select is out of scope if it exists, and extra
// otherwise.
func TestSelected(t *testing.T) {
	labeled := func(w *world, name, value string) *unstructured.Unstructured {
		return w.create(configMaps, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": value}}})
	}
	for _, tc := range []struct {
		name, labels, fields string
	}{
		{"labels", "app=web", ""},
		{"fields", "", "metadata.name!=other,metadata.name!=left"},
		{"both", "app!=db", "metadata.name!=other,metadata.name!=left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.LabelSelector, w.opts.FieldSelector = tc.labels, tc.fields
			w.publish(event.Created, configMaps, labeled(w, "in", "web"))
			labeled(w, "other", "db")
			w.publish(event.Created, configMaps, labeled(w, "left", "db"))
			w.publish(event.Created, configMaps, labeled(w, "gone", "web"))
			w.delete(configMaps, "gone")
			labeled(w, "missing", "web")
			want(t, w.found(), "extra gone", "missing missing")
			r, err := w.verify()
			if err != nil || r.OutOfScope != 1 || r.Objects != 2 {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// TestScope verifies that verify counts the objects that the configuration does not select, but
// does not compare them.
func TestScope(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	w.publish(event.Created, roles, w.create(roles, "not-selected", nil))
	w.create(roles, "not-on-the-bus", nil)
	elsewhere := w.create(configMaps, "x", nil)
	elsewhere.SetNamespace("elsewhere")
	w.publish(event.Created, configMaps, elsewhere)
	w.delete(configMaps, "x")
	for _, tc := range []struct {
		name    string
		change  func(o *Options)
		want    []string
		outside int
	}{
		{"as it is", func(*Options) {}, nil, 2},
		{"two namespaces", func(o *Options) { o.Namespaces = []string{"elsewhere", w.namespace} }, []string{"extra x"}, 1},
		{"roles too", func(o *Options) { o.Resources = []string{"cm", "Role.rbac.authorization.k8s.io"} }, []string{"missing not-on-the-bus"}, 1},
		{"roles excluded", func(o *Options) {
			o.Resources = []string{"cm", "roles"}
			o.ExcludeResources = []string{"*.rbac.authorization.k8s.io"}
		}, nil, 2},
		{"the other excluded", func(o *Options) {
			o.Namespaces, o.ExcludeNamespaces = []string{"elsewhere", w.namespace}, []string{w.namespace}
		}, []string{"extra x"}, 2},
		{"namespaces by labels", func(o *Options) {
			o.Namespaces, o.NamespaceSelector = nil, labelSelector(t, "kubernetes.io/metadata.name="+w.namespace)
		}, []string{"extra x"}, 1},
		{"namespaces by labels that none has", func(o *Options) {
			o.Namespaces, o.NamespaceSelector = nil, labelSelector(t, "none")
		}, []string{"extra x", "extra a"}, 1},
		{"what is not selected is told", func(o *Options) { o.TellDeselected = true }, []string{"extra x", "extra not-selected"}, 0},
		{"what labels do not select is told", func(o *Options) { o.TellDeselected, o.LabelSelector = true, "none" }, []string{"extra x", "extra a", "extra not-selected"}, 0},
		{"nothing", func(o *Options) { o.Resources = []string{"widgets.example.com"} }, nil, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := w.opts
			tc.change(&o)
			r, err := Run(t.Context(), o)
			if err != nil || r.OutOfScope != tc.outside {
				t.Errorf("got %+v, %v", r, err)
			}
			var got []string
			for _, p := range r.Problems {
				got = append(got, fmt.Sprintf("%s %s", p.Kind, p.Name))
			}
			want(t, got, tc.want...)
			if (len(r.Unmatched) == 1) != (tc.name == "nothing") {
				t.Errorf("unmatched: %q", r.Unmatched)
			}
		})
	}
}

// TestAnotherScope verifies that an object on the bus is extra if it has a namespace although its resource
// is cluster-scoped, or has none although its resource is namespaced. Before the fix, verify could not
// list the path of such an object, and compared no other object of the resource.
func TestAnotherScope(t *testing.T) {
	w := newWorld(t)
	w.opts.Resources, w.opts.Namespaces = []string{"cm", "clusterroles"}, nil
	w.opts.LabelSelector = "test=" + w.namespace
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{"test": w.namespace}}}
	clusterRoles := event.Resource{Group: roles.Group, Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
	missing, err := w.dynamic.Resource(clusterRoles.GroupVersionResource()).Create(t.Context(), newObject(clusterRoles, w.namespace, labels), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.dynamic.Resource(clusterRoles.GroupVersionResource()).Delete(context.Background(), missing.GetName(), metav1.DeleteOptions{})
	})
	a := w.create(configMaps, "a", labels)
	w.publish(event.Created, configMaps, a)
	a.SetNamespace("")
	a.SetUID("invented")
	w.publish(event.Created, configMaps, a)
	role := newObject(clusterRoles, "r", labels)
	role.SetNamespace(w.namespace)
	role.SetUID("invented")
	role.SetResourceVersion(a.GetResourceVersion())
	namespaced := clusterRoles
	namespaced.Namespaced = true
	w.publish(event.Created, namespaced, role)
	want(t, w.found(), "missing "+w.namespace, "extra r: uid", "extra a: uid")
}

// TestDefinition verifies that the objects of a resource count as deleted if the cluster no longer
// serves the resource.
func TestDefinition(t *testing.T) {
	w := newWorld(t)
	group := w.namespace + ".example.com"
	definitions := w.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	widgets := event.Resource{Group: group, Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}}}},
		},
	}}
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := func(ctx context.Context) error {
		return definitions.Delete(ctx, definition.GetName(), metav1.DeleteOptions{})
	}
	t.Cleanup(func() { _ = remove(context.Background()) })
	w.opts.Resources = []string{"*." + group}
	w.opts.Settle = 2 * time.Second // discovery lags
	var widget *unstructured.Unstructured
	poll.Holds(t, "widgets are served", func() (ok bool) {
		var err error
		widget, err = w.client(widgets).Create(t.Context(), newObject(widgets, "w", map[string]any{
			"Metadata": map[string]any{"name": "mischief"}, "spec": map[string]any{"n": int64(1), "f": 1e21},
		}), metav1.CreateOptions{})
		return err == nil
	})
	w.publish(event.Created, widgets, widget)
	poll.Holds(t, "widgets are selected", func() bool {
		r, err := w.verify()
		return err == nil && r.Objects == 1 && r.Clean()
	})
	if err := remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	poll.Holds(t, "widgets are gone", func() bool {
		r, err := w.verify()
		return err == nil && len(r.Problems) == 1 && r.Problems[0].Kind == report.Extra && r.Problems[0].Name == "w"
	})
	w.publish(event.Deleted, widgets, widget)
	want(t, w.found())
}

// TestEverything verifies that a wildcard does not select resources that must be named, and that
// verify compares the rest of the cluster.
func TestEverything(t *testing.T) {
	w := newWorld(t)
	w.opts.Resources, w.opts.UnlessNamed, w.opts.Namespaces = []string{"*"}, []string{"secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}, nil
	r, err := w.verify()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]int{}
	for _, x := range r.Resources {
		served[x.Resource] = x.Objects
	}
	if served["namespaces"] == 0 || served["clusterroles.rbac.authorization.k8s.io"] == 0 {
		t.Errorf("got %v", served)
	}
	for _, quiet := range w.opts.UnlessNamed {
		for name := range served {
			if name == quiet {
				t.Errorf("%s is listed", name)
			}
		}
	}
	if len(r.Problems) != r.Objects {
		t.Errorf("of %d objects %d are missing on an empty bus", r.Objects, len(r.Problems))
	}
}
