package verify

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// TestPlanted verifies that verify finds each way in which a bus can be wrong, and nothing else. Of
// the objects a and b, only b is wrong. After a consistency point, verify must find the same
// problems without waiting for the settle time.
func TestPlanted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(w *world, b *unstructured.Unstructured)
		want  []string
	}{
		{"nothing", func(w *world, b *unstructured.Unstructured) { w.publish(event.Created, configMaps, b) }, nil},

		{"never published", func(*world, *unstructured.Unstructured) {}, []string{"missing b: the bus has no event of it"}},
		{"message lost", func(w *world, b *unstructured.Unstructured) {
			w.remove(w.publish(event.Created, configMaps, b))
		}, []string{"missing b: the bus has no event of it"}},
		{"deleted on the bus only", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Deleted, configMaps, b)
		}, []string{"missing b: the last event is its delete"}},
		{"recreated, only the delete is on the bus", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
			w.publish(event.Deleted, configMaps, b)
			w.create(configMaps, "b", nil)
		}, []string{"missing b: the last event is the delete of uid"}},

		{"not updated", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.touch(b)
		}, []string{"stale b: the bus is behind the cluster"}},
		{"recreated, the bus has the old one", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
			w.create(configMaps, "b", nil)
		}, []string{"stale b: the bus has uid"}},
		{"version from the future", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, as(string(b.GetUID()), plus(b.GetResourceVersion(), 1_000_000)))
		}, []string{"stale b: the bus is ahead of the cluster"}},
		{"last message lost", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.remove(w.publish(event.Updated, configMaps, w.touch(b)))
		}, []string{"stale b: the bus is behind the cluster"}},

		{"not deleted", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
		}, []string{"extra b: uid"}},
		{"invented", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			x := b.DeepCopy()
			x.SetName("x")
			x.SetUID("invented")
			w.publish(event.Created, configMaps, x)
		}, []string{`extra x: uid "invented" is not in the cluster`}},
		{"invented in the future", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			x := b.DeepCopy()
			x.SetName("x")
			x.SetUID("invented")
			x.SetResourceVersion(plus(b.GetResourceVersion(), 1_000_000))
			w.publish(event.Created, configMaps, x)
		}, []string{`extra x: uid "invented" is not in the cluster`}},

		{"other data", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { t["data"] = tree{"k": "other"} }))
		}, []string{"different b: same version, other data: data.k"}},
		{"data left out", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { delete(t, "data") }))
		}, []string{"different b: same version, other data: data (not on the bus)"}},
		{"managedFields left in", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { t["metadata"].(tree)["managedFields"] = []any{} }))
		}, []string{"different b: same version, other data: metadata.managedFields (only on the bus)"}},
		{"last-applied left in", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) {
				t["metadata"].(tree)["annotations"] = tree{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
			}))
		}, []string{"different b: same version, other data: metadata.annotations (only on the bus)"}},
		{"truncated", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Truncated = true })
		}, nil},
		{"truncated, with other metadata", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, func(c *event.Change) { c.Truncated = true },
				body(func(t tree) { t["metadata"].(tree)["labels"] = tree{"k": "v"} }))
		}, []string{"different b: same version, other data: the event holds metadata only"}},
		{"truncated, with a field left in", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"truncated": "true"})
		}, []string{`malformed b: the data of a partial object has the field "data"`}},
		{"an existing object with an unknown final state", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"finalstateunknown": "true"})
		}, []string{"malformed b: an event of type created has finalstateunknown", `malformed b: the data of a partial object has the field "data"`}},
		{"whole, but without its flag", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { delete(t, "data") }))
		}, []string{"different b"}},

		{"duplicate", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Updated, configMaps, b)
		}, []string{"misordered b: id"}},
		{"duplicate delete", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
			w.publish(event.Deleted, configMaps, b)
			w.publish(event.Deleted, configMaps, b)
		}, []string{"misordered b: id"}},
		{"version falls and rises", func(w *world, b *unstructured.Unstructured) {
			c := w.touch(b)
			d := w.touch(c)
			w.publish(event.Created, configMaps, b)
			w.publish(event.Updated, configMaps, c)
			w.publish(event.Updated, configMaps, b)
			w.publish(event.Updated, configMaps, d)
		}, []string{"misordered b: the version falls from"}},
		{"an old state is last", func(w *world, b *unstructured.Unstructured) {
			c := w.touch(b)
			w.publish(event.Created, configMaps, c)
			w.publish(event.Updated, configMaps, b)
		}, []string{"misordered b: the version falls from", "stale b: the bus is behind the cluster"}},
		{"epoch falls", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, epochOf(2))
			w.publish(event.Updated, configMaps, w.touch(b), epochOf(1))
		}, []string{"misordered b: the epoch falls from 2 to 1"}},
		{"a later epoch", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, as(string(b.GetUID()), plus(b.GetResourceVersion(), 1_000_000)))
			w.publish(event.Updated, configMaps, b, epochOf(1))
		}, nil},
		{"goes on after its delete", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Deleted, configMaps, b)
			w.publish(event.Updated, configMaps, w.touch(b))
		}, []string{"misordered b: type updated follows the delete of the same uid"}},
		{"left the selection and came back", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Deleted, configMaps, b)
			w.publish(event.Created, configMaps, w.touch(b))
		}, nil},
		{"recreated without a delete", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
			w.publish(event.Created, configMaps, w.create(configMaps, "b", nil))
		}, []string{"misordered b: uid"}},
		{"recreated", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, "b")
			w.publish(event.Deleted, configMaps, b)
			w.publish(event.Created, configMaps, w.create(configMaps, "b", nil))
		}, nil},
		{"message in the middle lost", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			c := w.touch(b)
			position := w.publish(event.Updated, configMaps, c)
			w.publish(event.Updated, configMaps, w.touch(c))
			w.remove(position)
		}, []string{"misordered b: previousversion is"}},
		{"first message lost", func(w *world, b *unstructured.Unstructured) {
			position := w.publish(event.Created, configMaps, b)
			w.publish(event.Updated, configMaps, w.touch(b))
			w.remove(position)
		}, nil},
		{"no first message", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Updated, configMaps, b)
		}, []string{"misordered b: the first event of uid"}},
		{"more messages than the stream keeps", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			for range busDepth {
				b = w.touch(b)
				w.publish(event.Updated, configMaps, b)
			}
		}, nil},
		{"wrong previousversion", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.publish(event.Updated, configMaps, w.touch(b), previous("1"))
		}, []string{`misordered b: previousversion is "1"`}},

		{"wrong id", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"id": "wrong"})
		}, []string{`malformed b: id is "wrong"`}},
		{"wrong source", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"source": "/kubernetes/other"})
		}, []string{`malformed b: source is "/kubernetes/other"`}},
		{"wrong sequence", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"sequence": "0000.00000000000000000001"})
		}, []string{`malformed b: sequence is "0000.00000000000000000001"`}},
		{"no sequence", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"sequence": ""})
		}, []string{"missing b: the bus has no event of it", `malformed b: a message on subject`}},
		{"wrong type", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"type": "io.kuberelay.object.renamed"})
		}, []string{"missing b: the bus has no event of it", `malformed b: a message on subject`}},
		{"on another's subject", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.raw(subject.Object("kuberelay", clusterName, configMaps.Key(w.namespace, "x")), b, nil)
		}, []string{"extra x", "malformed x: metadata.name of the data", "malformed x: name is", "malformed x: partitionkey", "malformed x: the attribute subject is"}},
		{"uid not that of the data", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, func(c *event.Change) { o := *c.Object; o.UID = "other"; c.Object = &o })
		}, []string{"malformed b: metadata.uid of the data is", "stale b: the bus has uid"}},
		{"no event at all", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			if _, err := w.js.Publish(w.t.Context(), subject.Object("kuberelay", clusterName, configMaps.Key(w.namespace, "b")), []byte("x")); err != nil {
				w.t.Fatal(err)
			}
		}, []string{"malformed b: a message on subject"}},
		{"an impossible epoch after the last event", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.raw("", b, map[string]string{"sequence": "65535.1"})
		}, []string{"malformed b: a message on subject"}},
		{"an impossible epoch after other data", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b, body(func(t tree) { t["data"] = tree{"k": "other"} }))
			w.raw("", b, map[string]string{"sequence": "65535.1"})
		}, []string{"different b: same version, other data: data.k", "malformed b: a message on subject"}},
		{"no subject of an object", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			if _, err := w.js.Publish(w.t.Context(), subject.Cluster("kuberelay", clusterName)[:len("kuberelay.test=2Ecluster.")]+"x", []byte("x")); err != nil {
				w.t.Fatal(err)
			}
		}, []string{"malformed : a message on subject"}},
		{"marker twice", func(w *world, b *unstructured.Unstructured) {
			for range 2 {
				m, err := w.builder.Marker(event.SnapshotStarted, configMaps, "s", 0, time.Now())
				if err == nil {
					_, err = w.send(m)
				}
				if err != nil {
					w.t.Fatal(err)
				}
			}
			w.publish(event.Created, configMaps, b)
		}, []string{"misordered : the marker"}},
		{"another cluster's events", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.raw(subject.Object("kuberelay", "other", configMaps.Key(w.namespace, "x")), b, nil)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.create(configMaps, "a", nil)
			w.publish(event.Created, configMaps, a)
			w.publish(event.Updated, configMaps, w.touch(a))
			tc.plant(w, w.create(configMaps, "b", map[string]any{"data": map[string]any{"k": "v"}}))
			got := w.found()
			want(t, got, tc.want...)
			if !strings.Contains(tc.name, "future") { // a point doesn't cover it
				w.atPoint()
				want(t, w.found(), tc.want...)
			}
		})
	}
}

// TestPlantedTable verifies that a row of the table shows all details of a problem.
func TestPlantedTable(t *testing.T) {
	w := newWorld(t)
	a := w.create(configMaps, "a", nil)
	position := w.publish(event.Created, configMaps, a)
	later := w.touch(a)
	r, err := w.verify()
	if err != nil {
		t.Fatal(err)
	}
	want := report.Problem{
		Kind: report.Stale, Resource: "configmaps", Namespace: w.namespace, Name: "a",
		Cluster: later.GetResourceVersion(), Bus: a.GetResourceVersion(), Position: position, Detail: "the bus is behind the cluster",
	}
	if len(r.Problems) != 1 || r.Problems[0] != want {
		t.Errorf("got %+v, want %+v", r.Problems, want)
	}
	if r.Clean() || !strings.Contains(r.Summary(), "not clean: 1 difference of state in 1 object, 0 problems of order or form in 1 message; stream up to ") {
		t.Errorf("the summary is %q", r.Summary())
	}
}

// TestClean verifies that a bus with every state and nothing else is clean.
func TestClean(t *testing.T) {
	w := newWorld(t)
	w.create(configMaps, "a", map[string]any{"data": map[string]any{"k": "<&>\u2028"}})
	b := w.create(configMaps, "b", nil)
	w.sync(configMaps)
	b = w.touch(b)
	w.publish(event.Updated, configMaps, b)
	want(t, w.found())
	r, err := w.verify()
	stream, failure := w.js.Stream(t.Context(), "KUBERELAY")
	if failure != nil {
		t.Fatal(failure)
	}
	if err != nil || r.Objects != 2 || r.Messages != 3 || r.Position != stream.CachedInfo().State.LastSeq || !r.Clean() {
		t.Errorf("got %+v, %v", r, err)
	}
}
