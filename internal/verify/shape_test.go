package verify

import (
	"encoding/base64"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// shaped returns a shape that drops the data key "noise", and selects objects without the data key
// "hidden".
func shaped(event.Resource) decode.Shape {
	data := func(object map[string]any) tree { d, _ := object["data"].(tree); return d }
	return decode.Shape{
		Select: func(object map[string]any) (bool, error) { _, hidden := data(object)["hidden"]; return !hidden, nil },
		Drops:  true,
		Project: func(object map[string]any, _ decode.Hash) bool {
			_, noisy := data(object)["noise"]
			delete(data(object), "noise")
			return noisy
		},
	}
}

// set changes the data of an object in the cluster.
func (w *world) set(u *unstructured.Unstructured, field, value string) *unstructured.Unstructured {
	w.t.Helper()
	return w.update(configMaps, u, func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, value, "data", field); err != nil {
			w.t.Fatal(err)
		}
	})
}

// TestShaped verifies that verify handles objects that are selected by content and published in
// part.
func TestShaped(t *testing.T) {
	plain := func(c *event.Change) { c.Object.Digest = event.Digest{} }
	for name, tc := range map[string]struct {
		plant func(w *world, b *unstructured.Unstructured)
		want  []string
	}{
		"the projection is there": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
		}, nil},
		"only noise since": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.set(w.set(b, "noise", "2"), "noise", "3")
		}, nil},
		"more than noise since": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.set(w.set(b, "noise", "2"), "signal", "2")
		}, []string{"stale b: the bus is behind"}},
		"noise is on the bus": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { t["data"].(tree)["noise"] = "1" }))
		}, []string{"different b: same version, other data: data.noise (only on the bus)", "malformed b: digest is"}},
		"noise is on the bus, and noise since": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, plain, body(func(t tree) { t["data"].(tree)["noise"] = "1" }))
			w.set(b, "noise", "2")
		}, []string{"stale b: the bus is behind"}},
		"projected in another way, and then in this": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, plain, body(func(t tree) { t["data"].(tree)["noise"] = "1" }))
			w.publish(event.Updated, configMaps, b, func(c *event.Change) { c.After = 2 })
		}, nil},
		"sent before there was a projection, and only noise since": {func(w *world, b *unstructured.Unstructured) {
			b = w.update(configMaps, b, func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "data", "noise") })
			w.publish(event.Created, configMaps, b, plain)
			w.set(b, "noise", "2")
		}, nil},
		"a digest of something else": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Object.Digest = event.Digest{1, 15: 1} })
		}, []string{"malformed b: digest is"}},
		"the metadata of one that is too large, and noise since": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Truncated = true })
			w.set(b, "noise", "2")
		}, nil},
		"deselected": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.set(b, "hidden", "1")
			w.publish(event.Deselected, configMaps, b, func(c *event.Change) { c.After = 2 })
		}, nil},
		"not deselected": {func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.set(b, "hidden", "1")
		}, []string{"extra b: it is in the cluster, but KUBERELAY_FILTER does not select it"}},
		"never selected, and not there": {func(w *world, b *unstructured.Unstructured) {
			w.set(b, "hidden", "1")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.shape, w.opts.Shape = shaped(configMaps), shaped
			data := map[string]any{"data": map[string]any{"signal": "1", "noise": "1"}}
			w.publish(event.Created, configMaps, w.create(configMaps, "a", data))
			tc.plant(w, w.create(configMaps, "b", data))
			want(t, w.found(), tc.want...)
		})
	}
}

// TestShapedSecrets verifies that a filter sees hashes in place of a Secret's values, as events
// contain them.
func TestShapedSecrets(t *testing.T) {
	w := newWorld(t)
	hashed := func(object map[string]any) (bool, error) {
		data, _ := object["data"].(tree)
		value, _ := data["password"].(string)
		plain, err := base64.StdEncoding.DecodeString(value)
		return err == nil && strings.HasPrefix(string(plain), "hmac-sha256:"), nil
	}
	w.shape = decode.Shape{Select: hashed}
	w.opts.Shape = func(event.Resource) decode.Shape { return w.shape }
	w.opts.Resources, w.opts.RedactionKey = []string{"secrets"}, redactionKey
	w.publish(event.Created, secrets, w.create(secrets, "s", map[string]any{"data": map[string]any{"password": "aHVudGVyMg=="}}))
	want(t, w.found())
}

// TestNothingIsSent verifies that verify expects no objects of a resource on the bus if the
// configuration publishes none of them.
func TestNothingIsSent(t *testing.T) {
	w := newWorld(t)
	w.opts.Shape = func(event.Resource) decode.Shape { return decode.Shape{None: true} }
	a := w.create(configMaps, "a", nil)
	want(t, w.found())
	w.publish(event.Created, configMaps, a)
	want(t, w.found(), "extra a: it is in the cluster, but KUBERELAY_FILTER does not select it")
}

// TestShapedAndLabeled verifies that an object that left both the label selector and the filter while
// no forwarder ran is out of scope, because the forwarder leaves it on the bus. Before the fix, it
// was extra.
func TestShapedAndLabeled(t *testing.T) {
	for name, pointed := range map[string]bool{"at a point": true, "by settling": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.Shape, w.opts.LabelSelector = shaped, "app=web"
			labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "data": map[string]any{"signal": "1"}}
			both, hidden := w.create(configMaps, "both", labels), w.create(configMaps, "hidden", labels)
			w.publish(event.Created, configMaps, both)
			w.publish(event.Created, configMaps, hidden)
			w.update(configMaps, w.set(both, "hidden", "1"), func(u *unstructured.Unstructured) { u.SetLabels(nil) })
			w.set(hidden, "hidden", "1")
			if pointed {
				w.point(w.version())
			}
			want(t, w.found(), "extra hidden: it is in the cluster, but KUBERELAY_FILTER does not select it")
			if r, err := w.verify(); err != nil || r.OutOfScope != 1 {
				t.Errorf("got %+v, %v; want one object out of scope", r, err)
			}
		})
	}
}
