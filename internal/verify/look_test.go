package verify

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// TestCouldNotLook: whatever keeps us from looking is an error, and the report that
// comes with it is not clean.
func TestCouldNotLook(t *testing.T) {
	nowhere := "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t))
	for _, tc := range []struct {
		name  string
		spoil func(w *world)
		want  string
	}{
		{"no API server", func(w *world) { w.opts.Kube.Host = "https://" + nowhere }, "refused"},
		{"no name for the cluster", func(w *world) {
			w.opts.NATS.Cluster = ""
			w.opts.Kube = testCluster.ControlPlane(w.t).ConfigFor("little")
		}, "read the cluster's name: "},
		{"wrong token", func(w *world) { w.opts.Kube.BearerToken = "wrong" }, "Unauthorized"},
		{"no bus", func(w *world) { w.opts.NATS.URLs = []string{"nats://" + nowhere} }, "open the bus: it cannot be reached: not connected to nats://" + nowhere},
		{"malformed URL of the bus", func(w *world) { w.opts.NATS.URLs = []string{"http://x"} }, "KUBERELAY_NATS_URL"},
		{"no stream", func(w *world) { w.opts.NATS.Stream = "OTHER" }, nats.ErrStreamMissing.Error()},
		{"forbidden", func(w *world) { w.opts.Kube = testCluster.ControlPlane(w.t).ConfigFor("little") }, "configmaps is forbidden"},
		{"label selector that is none", func(w *world) { w.opts.LabelSelector = "a in" }, "unable to parse"},
		{"field that is none", func(w *world) { w.opts.FieldSelector = "spec.color=red" }, "not a known field selector"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
			tc.spoil(w)
			r, err := w.verify()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v, %v, want an error with %q", r, err, tc.want)
			}
			if len(r.Unlisted) == 0 && r.Objects != 0 {
				t.Errorf("got %+v with %v", r, err)
			}
		})
	}
}

// TestBusGone: a bus that goes away while it is read is not taken for its end.
func TestBusGone(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w.opts.Settle = 10 * limit
	w.opts.NATS.AckTimeout = time.Second
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for what is in flight" {
			w.server.Stop()
		}
	})
	if r, err := Run(ctx, w.opts); err == nil || ctx.Err() != nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestStreamReplaced: positions that begin anew do not go with what was read.
func TestStreamReplaced(t *testing.T) {
	w := newWorld(t)
	a := w.create(configMaps, "a", nil)
	w.create(configMaps, "b", nil)
	w.publish(event.Created, configMaps, a)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	w.opts.Settle = 10 * limit
	replaced := false
	w.opts.Logger = logger(func(message string) {
		if message != "waiting for what is in flight" || replaced {
			return
		}
		replaced = true
		s, err := w.js.Stream(ctx, "KUBERELAY")
		if err == nil {
			err = w.js.DeleteStream(ctx, "KUBERELAY")
		}
		if err == nil {
			_, err = w.js.CreateStream(ctx, s.CachedInfo().Config)
		}
		if err == nil {
			_, err = w.js.Publish(ctx, event.Subject("kuberelay", clusterName, configMaps.Key("x", "y")), nil)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if r, err := Run(ctx, w.opts); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), errChanged.Error()) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestPartlyForbidden: what could be looked at is in the report.
func TestPartlyForbidden(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", nil)
	role := w.create(roles, "reader", map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list"},
	}}})
	w.create(event.Resource{Group: roles.Group, Version: "v1", Resource: "rolebindings", Kind: "RoleBinding"}, "reader", map[string]any{
		"roleRef":  map[string]any{"apiGroup": roles.Group, "kind": "Role", "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": roles.Group, "kind": "User", "name": "little"}},
	})
	w.opts.Kube = testCluster.ControlPlane(t).ConfigFor("little")
	w.opts.Resources = []string{"configmaps", "roles"}
	waitFor(t, "the role is known", func() bool {
		r, err := w.verify()
		return err != nil && len(r.Unlisted) == 1 && r.Unlisted[0].Resource == "roles.rbac.authorization.k8s.io in "+w.namespace &&
			len(r.Problems) == 1 && r.Problems[0].Name == "a" && !r.Clean()
	})
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(limit)
	for !holds() {
		select {
		case <-timeout:
			t.Fatalf("%s: not within %s", what, limit)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestStructured: the other content mode.
func TestStructured(t *testing.T) {
	w := newWorld(t)
	o := w.opts.NATS
	o.ContentMode = nats.Structured
	bus, err := nats.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	w.bus = bus
	a := w.create(configMaps, "a", map[string]any{"data": map[string]any{"k": "<é>"}})
	w.publish(event.Created, configMaps, a)
	w.publish(event.Updated, configMaps, w.touch(a))
	b := w.create(configMaps, "b", nil)
	w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Truncated = true })
	want(t, w.found())
	w.publish(event.Updated, configMaps, w.touch(b), body(func(t tree) { t["data"] = tree{"k": "other"} }))
	want(t, w.found(), "different b: same version, other data: data (only on the bus)")
}

// TestSecrets: with the key their values are compared, without it their names.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	w.opts.Resources = []string{"secrets"}
	s := w.create(secrets, "s", map[string]any{"stringData": map[string]any{"password": "hunter2"}})
	w.publish(event.Created, secrets, s)
	want(t, w.found())
	w.opts.RedactionKey = redactionKey
	want(t, w.found())
	w.opts.RedactionKey = []byte("another key")
	want(t, w.found(), "different s: same version, other data: data.password")
	w.publish(event.Updated, secrets, w.update(secrets, s, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }),
		body(func(t tree) { t["data"].(tree)["password"] = "aHVudGVyMg==" }))
	w.opts.RedactionKey = nil
	got := w.found()
	want(t, got, "different s: same version, other data: data.password", "malformed s: a value of the Secret is on the bus as it is")
	if strings.Contains(fmt.Sprint(got), "hunter2") || strings.Contains(fmt.Sprint(got), "aHVudGVyMg") {
		t.Errorf("%q shows it", got)
	}
}

// TestHostileNames: names that could be taken for something else.
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

// TestSelected: labels and fields choose what is compared; what they leave out and
// the bus still has is out of scope if it exists, and extra if it does not.
func TestSelected(t *testing.T) {
	labelled := func(w *world, name, value string) *unstructured.Unstructured {
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
			w.publish(event.Created, configMaps, labelled(w, "in", "web"))
			labelled(w, "other", "db")
			w.publish(event.Created, configMaps, labelled(w, "left", "db"))
			w.publish(event.Created, configMaps, labelled(w, "gone", "web"))
			w.delete(configMaps, "gone")
			labelled(w, "missing", "web")
			want(t, w.found(), "extra gone", "missing missing")
			r, err := w.verify()
			if err != nil || r.OutOfScope != 1 || r.Objects != 2 {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// TestScope: what the configuration does not select is counted, not compared.
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
			o.Namespaces, o.NamespaceSelector = nil, selector(t, "kubernetes.io/metadata.name="+w.namespace)
		}, []string{"extra x"}, 1},
		{"namespaces by labels that none has", func(o *Options) {
			o.Namespaces, o.NamespaceSelector = nil, selector(t, "none")
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

// TestDefinition: the objects of a type that the cluster does not serve any more
// are gone.
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
	waitFor(t, "widgets are served", func() (ok bool) {
		var err error
		widget, err = w.client(widgets).Create(t.Context(), newObject(widgets, "w", map[string]any{
			"Metadata": map[string]any{"name": "mischief"}, "spec": map[string]any{"n": int64(1), "f": 1e21},
		}), metav1.CreateOptions{})
		return err == nil
	})
	w.publish(event.Created, widgets, widget)
	waitFor(t, "widgets are selected", func() bool {
		r, err := w.verify()
		return err == nil && r.Objects == 1 && r.Clean()
	})
	if err := remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "widgets are gone", func() bool {
		r, err := w.verify()
		return err == nil && len(r.Problems) == 1 && r.Problems[0].Kind == Extra && r.Problems[0].Name == "w"
	})
	w.publish(event.Deleted, widgets, widget)
	want(t, w.found())
}

// TestEverything: a wildcard leaves out what is not named, and the bus is compared
// with the rest of the whole cluster.
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

// TestReadOnly: the bus is as it was.
func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	state := func() jetstream.StreamInfo {
		s, err := w.js.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			t.Fatal(err)
		}
		return *s.CachedInfo()
	}
	before := state()
	want(t, w.found())
	after := state()
	if fmt.Sprint(before.Config) != fmt.Sprint(after.Config) || before.State.LastSeq != after.State.LastSeq || after.State.Consumers > 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestHangingAPIServer: a server that accepts and says nothing does not hold us for
// ever.
func TestHangingAPIServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := newWorld(t)
	w.opts.Kube.Host, w.opts.Kube.Timeout = "https://"+l.Addr().String(), 100*time.Millisecond
	if r, err := w.verify(); err == nil {
		t.Errorf("got %+v", r)
	}
}
