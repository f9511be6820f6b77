package replica

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestMovedVersion verifies a list after the forwarder moved to another API version, when only a changed
// object has the new version on the bus. Each object of a generic Go type has its version on the bus.
func TestMovedVersion(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t,
			state{name: "changed", version: 1, apiVersion: "v1beta1"}, state{name: "kept", version: 2, apiVersion: "v1beta1"},
			state{name: "changed", version: 3},
		)
		for _, version := range []string{"v1", "v1beta1"} {
			for _, object := range []runtime.Object{nil, &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}} {
				lw := w.open(t).ListerWatcher(gvrOf("", version, "configmaps"), Options{Object: object})
				_, got, items := list(t, lw)
				wantList(t, got, "default/changed@3", "default/kept@2")
				for i, want := range []string{"v1", "v1beta1"} {
					if got := items[i].GetObjectKind().GroupVersionKind(); got.Version != want || got.Kind != "ConfigMap" {
						t.Errorf("%s has the kind %v, want version %s", show(items[i]), got, want)
					}
				}
			}
		}
		lw := w.open(t).ListerWatcher(configMaps, Options{})
		version, _, _ := list(t, lw)
		events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
		w.puts(t, state{name: "kept", version: 4})
		events.want("MODIFIED default/kept@4")
	})
}

// TestDeleteInAnotherVersion verifies that a watch with a typed object continues after a delete in an API
// version that the Go type can't hold.
func TestDeleteInAnotherVersion(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		const in = `{"app":"web"}`
		for selector, want := range map[string]string{"": "DELETED default/a@", "app=web": "DELETED default/a@2"} {
			w.sync(t)
			w.puts(t, state{name: "a", version: 1, labels: in})
			parsed, err := labels.Parse(selector)
			if err != nil {
				t.Fatal(err)
			}
			lw := w.open(t).ListerWatcher(configMaps, Options{Object: &corev1.ConfigMap{}, Labels: parsed})
			version, _, _ := list(t, lw)
			events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
			w.puts(t, state{name: "a", version: 2, labels: in, apiVersion: "v1beta1", kind: event.Deleted})
			events.want(want)
			w.puts(t, state{name: "b", version: 3, labels: in})
			events.want("ADDED default/b@3")
			w.puts(t, state{name: "b", version: 4, labels: in, kind: event.Deleted})
			events.want("DELETED default/b@4")
		}
	})
}

// TestKindOfBookmarks verifies that the kind of bookmarks doesn't change with the API version of each
// object, because an informer drops bookmarks of another kind.
func TestKindOfBookmarks(t *testing.T) {
	d, err := newDecoder(configMaps, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1beta1", "v1", "v1beta1"} {
		m := state{name: "a", version: 1, apiVersion: version}.message(t)
		c, err := changeOf(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.decode(c); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.empty().GetObjectKind().GroupVersionKind(); got.Version != "v1" || got.Kind != "ConfigMap" {
		t.Errorf("the kind is %v, want that of the requested version", got)
	}
}
