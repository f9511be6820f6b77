package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// sample is a kind of object that a test creates, changes and deletes.
type sample struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	name       string
	manifest   string // without the name
	token      string // the name as a subject token, if it differs
	path       string // the name in an API path, if it differs
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

var samples = []sample{
	{gvr: configMaps, kind: "ConfigMap", namespaced: true, name: "settings.v1", token: "settings=2Ev1", manifest: `{data: {a: "1"}}`},
	{gvr: gvr("", "v1", "services"), kind: "Service", namespaced: true, name: "web", manifest: `{spec: {ports: [{port: 80}]}}`},
	{gvr: gvr("", "v1", "serviceaccounts"), kind: "ServiceAccount", namespaced: true, name: "robot", manifest: `{}`},
	{gvr: gvr("", "v1", "pods"), kind: "Pod", namespaced: true, name: "job-1", manifest: `{spec: {containers: [{name: c, image: none}]}}`},
	{gvr: gvr("", "v1", "nodes"), kind: "Node", name: "machine-1.example", token: "machine-1=2Eexample", manifest: `{}`},
	{gvr: gvr("", "v1", "persistentvolumes"), kind: "PersistentVolume", name: "disk-1",
		manifest: `{spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /none}}}`},
	{gvr: gvr("apps", "v1", "statefulsets"), kind: "StatefulSet", namespaced: true, name: "db",
		manifest: `{spec: {replicas: 0, serviceName: db, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: none}]}}}}`},
	{gvr: gvr("batch", "v1", "cronjobs"), kind: "CronJob", namespaced: true, name: "nightly",
		manifest: `{spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}}}`},
	{gvr: gvr("networking.k8s.io", "v1", "networkpolicies"), kind: "NetworkPolicy", namespaced: true, name: "deny", manifest: `{spec: {podSelector: {}}}`},
	{gvr: gvr("rbac.authorization.k8s.io", "v1", "roles"), kind: "Role", namespaced: true, name: "odd: *.> näme",
		token: "odd=3A=20=2A=2E=3E=20n=C3=A4me", path: "odd:%20%2A.%3E%20n%C3%A4me", manifest: `{rules: []}`},
	{gvr: gvr("rbac.authorization.k8s.io", "v1", "clusterroles"), kind: "ClusterRole", name: "e2e:system:reader", token: "e2e=3Asystem=3Areader", manifest: `{rules: []}`},
	{gvr: gvr("storage.k8s.io", "v1", "storageclasses"), kind: "StorageClass", name: "fast", manifest: `{provisioner: none.example.com}`},
	{gvr: gvr("scheduling.k8s.io", "v1", "priorityclasses"), kind: "PriorityClass", name: "urgent", manifest: `{value: 7}`},
	{gvr: widgets, kind: "Widget", namespaced: true, name: "left", manifest: `{spec: {size: 12345678901234567, ratio: 1.5, text: "<&>\u2028"}}`},
	{gvr: planets, kind: "Planet", name: "mars", manifest: `{spec: {moons: [phobos, deimos]}}`},
}

func (s sample) namespace(n string) string {
	if s.namespaced {
		return n
	}
	return ""
}

func (s sample) yaml(name string) string {
	api := s.gvr.GroupVersion().String()
	quoted, _ := json.Marshal(name)
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\n%s\n", api, s.kind, quoted, body(s.manifest))
}

// body removes the outer braces of a manifest, so that other members can precede it.
func body(manifest string) string {
	return strings.TrimSuffix(strings.TrimPrefix(manifest, "{"), "}")
}

func subject(gvr schema.GroupVersionResource, namespace, token string) string {
	group := "core"
	if gvr.Group != "" {
		group = strings.ReplaceAll(gvr.Group, ".", "_")
	}
	if namespace == "" {
		namespace = "_"
	}
	return strings.Join([]string{"kuberelay", clusterName, group, gvr.Resource, namespace, token}, ".")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// TestEveryResource creates, changes and deletes an object of each kind, and verifies every
// attribute of every event. It compares the data of an event with the object in the same version,
// because a controller may change the object before the forwarder publishes it.
func TestEveryResource(t *testing.T) {
	bus := natsServer(t)
	f, cp := sharedForwarder(t, bus.URL, map[string]string{"RESOURCES": "*"})
	u := newUser(t, cp)
	u.define("widgets", "Widget", "Namespaced")
	u.define("planets", "Planet", "Cluster")
	namespace := controlplanetest.Namespace(t, cp)
	f.start().ready()
	for _, of := range []string{"widgets", "planets"} { // discovery may list them later than the API server serves their paths
		f.awaitMetric(`kuberelay_informer_state{reason="",resource="`+of+`.example.com",state="synced"} 1`, true)
	}
	sub := subscribe(t, bus.URL)
	for _, s := range samples {
		t.Run(s.gvr.GroupResource().String(), func(t *testing.T) {
			u, sub := &user{t, u.client}, sub.forTest(t)
			ns, token := s.namespace(namespace), or(s.token, s.name)
			on := subject(s.gvr, ns, token)
			start := time.Now()
			await := func(kind string, has func(received) bool) received {
				t.Helper()
				var found received
				poll.Try(t, s.name+" is "+kind, func(context.Context) error {
					for _, r := range sub.of(on) {
						if r.kind() == kind && has(r) {
							found = r
							return nil
						}
					}
					return fmt.Errorf("got %q", sub.kinds(on))
				})
				return found
			}
			labels := func(r received) any { return decode(t, r.data)["metadata"].(map[string]any)["labels"] }
			// check compares the data of an event with the object in the same version.
			check := func(r received, previous string) *unstructured.Unstructured {
				t.Helper()
				o := u.inVersion(s.gvr, ns, s.name, r.attribute("resourceversion"))
				checkEvent(t, r, s, o, ns, previous, "watch", start)
				if got := decode(t, r.data); !reflect.DeepEqual(got, asPublished(o)) {
					t.Errorf("%s data differ:\n got %v\nwant %v", r.kind(), got, asPublished(o))
				}
				return o
			}
			u.create(s.gvr, ns, s.yaml(s.name))
			check(await("created", func(received) bool { return true }), "")
			u.label(s.gvr, ns, s.name, "yes")
			second := await("updated", func(r received) bool {
				of, _ := labels(r).(map[string]any)
				return of["changed"] == "yes"
			})
			changed := check(second, previous(sub.of(on), second))
			u.delete(s.gvr, ns, s.name)
			last := await("deleted", func(received) bool { return true })
			deleted := changed.DeepCopy()
			deleted.SetResourceVersion(last.attribute("resourceversion"))
			checkEvent(t, last, s, deleted, ns, previous(sub.of(on), last), "watch", start)
			if number(last.attribute("resourceversion")) <= number(changed.GetResourceVersion()) {
				t.Errorf("the delete has version %s, not after %s", last.attribute("resourceversion"), changed.GetResourceVersion())
			}
			if got := labels(last); !reflect.DeepEqual(got, labels(second)) {
				t.Errorf("the delete's data are not the last state: labels %v", got)
			}
			if kinds := sub.kinds(on); !strings.HasPrefix(kinds, "created") || !strings.HasSuffix(kinds, "deleted") || strings.Count(kinds, "created") != 1 || strings.Count(kinds, "deleted") != 1 {
				t.Errorf("got the types %q", kinds)
			}
		})
	}
	f.idle()
	sub.end()
	sub.checkOrder()
	checkReplica(t, u, sub, samples)
}

// previous returns the version of the event before r on the same subject.
func previous(all []received, r received) string {
	for n := 1; n < len(all); n++ {
		if all[n].sequence == r.sequence {
			return all[n-1].attribute("resourceversion")
		}
	}
	return "no event before it"
}

// checkEvent verifies every attribute of an event.
func checkEvent(t *testing.T, r received, s sample, o *unstructured.Unstructured, ns, previous, cause string, start time.Time) {
	t.Helper()
	path := "/apis/" + s.gvr.Group + "/" + s.gvr.Version
	if s.gvr.Group == "" {
		path = "/api/" + s.gvr.Version
	}
	if ns != "" {
		path += "/namespaces/" + ns
	}
	id := string(o.GetUID()) + "." + o.GetResourceVersion()
	if r.kind() == "deleted" {
		id = string(o.GetUID()) + ".deleted"
	}
	want := map[string]string{
		"specversion":     "1.0",
		"id":              id,
		"source":          "/kubernetes/" + clusterName,
		"type":            "io.kuberelay.object." + r.kind(),
		"subject":         path + "/" + s.gvr.Resource + "/" + or(s.path, s.name),
		"datacontenttype": "application/json",
		"partitionkey":    strings.Join([]string{clusterName, or(s.gvr.Group, "core"), s.gvr.Resource, or(ns, "_"), s.name}, "/"),
		"sequence":        fmt.Sprintf("0000.%020s", o.GetResourceVersion()),
		"apiversion":      s.gvr.GroupVersion().String(),
		"kind":            s.kind,
		"namespace":       ns,
		"name":            s.name,
		"uid":             string(o.GetUID()),
		"resourceversion": o.GetResourceVersion(),
		"previousversion": previous,
		"cause":           cause,
		"time":            r.attribute("time"),
		"digest":          fmt.Sprintf("%016x", xxhash.Sum64(r.data)),
	}
	got := map[string]string{}
	for name := range r.headers {
		if a, ok := strings.CutPrefix(name, "ce-"); ok {
			got[a] = r.attribute(a)
		}
	}
	if r.kind() == "updated" { // the test changes a label
		if !strings.Contains(got["changed"], "/metadata/labels") {
			t.Errorf("changed is %q, want the labels in it", got["changed"])
		}
		delete(got, "changed")
	}
	for a, v := range want {
		if v == "" {
			delete(want, a)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: attributes\n got %v\nwant %v", r.kind(), got, want)
	}
	if at, err := time.Parse(time.RFC3339Nano, r.attribute("time")); err != nil || at.Before(start.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("time %q (%v)", r.attribute("time"), err)
	}
}

func decode(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("data: %v", err)
	}
	return o
}
