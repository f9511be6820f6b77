package verify

import (
	"context"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	natsreader "github.com/kuberelay/kuberelay/internal/publish/nats/reader"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// TestSymmetricMistakes verifies that verify finds mistakes that a forwarder makes both when it
// writes and when it reads.
func TestSymmetricMistakes(t *testing.T) {
	const name = "b.c" // its dot must be escaped in a subject
	written := func(w *world, as string) string {
		return strings.Replace(subject.Object("kuberelay", clusterName, configMaps.Key(w.namespace, name)), "b=2Ec", as, 1)
	}
	for _, tc := range []struct {
		name  string
		plant func(w *world, b *unstructured.Unstructured)
		want  []string
	}{
		{"no mistake", func(w *world, b *unstructured.Unstructured) { w.raw("", b, nil) }, nil},
		{"a subject's escape in lower case", func(w *world, b *unstructured.Unstructured) {
			w.raw(written(w, "b=2ec"), b, nil)
		}, []string{"malformed : a message on subject", "missing b.c"}},
		{"a subject's escape in octal", func(w *world, b *unstructured.Unstructured) {
			w.raw(written(w, "b=56c"), b, nil)
		}, []string{"malformed : a message on subject", "missing b.c"}},
		{"a subject's dot as in a group", func(w *world, b *unstructured.Unstructured) {
			w.raw(written(w, "b_c"), b, nil)
		}, []string{"missing b.c", "extra b_c", "malformed b_c: metadata.name", "malformed b_c: name is", "malformed b_c: partitionkey", "malformed b_c: the attribute subject"}},
		{"a subject that escapes what need not be", func(w *world, b *unstructured.Unstructured) {
			w.raw(written(w, "=62=2Ec"), b, nil)
		}, []string{"malformed : a message on subject", "missing b.c"}},
		{"a partition key that escapes what need not be", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"partitionkey": clusterName + "/core/configmaps/" + w.namespace + "/b%252Ec"})
		}, []string{"malformed b.c: partitionkey"}},
		{"a header that escapes what need not be", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"name": "b%2Ec"})
		}, []string{"missing b.c", "malformed b.c: a message on subject"}},
		{"an attribute that escapes what need not be", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"name": "b%252Ec"})
		}, []string{"malformed b.c: name", "malformed b.c: name"}},
		{"a sequence without its zeros", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"sequence": "0000." + b.GetResourceVersion()})
		}, []string{"missing b.c", "malformed b.c: a message on subject"}},
		{"an epoch in hex", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"sequence": "000a." + strings.Repeat("0", 20-len(b.GetResourceVersion())) + b.GetResourceVersion()})
		}, []string{"missing b.c", "malformed b.c: a message on subject"}},
		{"a time in another format", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"time": "1700000000"})
		}, []string{"malformed b.c: time"}},
		{"another content type", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"datacontenttype": "text/json"})
		}, []string{"malformed b.c: datacontenttype"}},
		{"no cause", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"cause": ""})
		}, []string{"malformed b.c: cause"}},
		{"another kind", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"kind": "configmap"})
		}, []string{"malformed b.c: kind of the data"}},
		{"another apiVersion in the data of a delete", func(w *world, b *unstructured.Unstructured) {
			w.publish(event.Created, configMaps, b)
			w.delete(configMaps, name)
			w.publish(event.Deleted, configMaps, b, body(func(t tree) { t["apiVersion"] = "v2" }))
		}, []string{"malformed b.c: apiVersion of the data"}},
		{"a removed key of a bucket", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, map[string]string{"KV-Operation": "DEL"})
		}, []string{`malformed b.c: the header KV-Operation is "DEL", want ""`}},
		{"a key of a bucket that stays", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			w.delete(configMaps, name)
			w.raw("", b, map[string]string{"type": string(event.Deleted), "id": string(b.GetUID()) + ".deleted"})
		}, []string{`malformed b.c: the header KV-Operation is "", want "DEL"`, "misordered b.c: previousversion"}},
		{"a claim without its time", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			w.marker(subject.Claim("kuberelay", clusterName), w.claimed(), `{"uid":"A","epoch":0}`)
		}, []string{"malformed : the data: the time of the claim"}},
		{"a claim of a negative epoch", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			w.marker(subject.Claim("kuberelay", clusterName), w.claimed(), `{"uid":"A","epoch":-1,"claimed":"2026-01-01T00:00:00Z"}`)
		}, []string{"malformed : the data: epoch"}},
		{"a marker that counts less than nothing", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			w.marker(subject.Marker("kuberelay", clusterName, configMaps.GroupResource()), w.synced(), `{"group":"","resource":"configmaps","count":-1}`)
		}, []string{"malformed : the data: count"}},
		{"a marker on another's subject", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			w.marker(subject.Marker("kuberelay", clusterName, secrets.GroupResource()), w.synced(), `{"group":"","resource":"configmaps","count":1}`)
		}, []string{`malformed : id is "configmaps.core.completed.s"`, "malformed : partitionkey is", `malformed : the attribute subject is "/api/v1/configmaps"`, "malformed : the data: it names group"}},
		{"a marker with the id and the subject of another", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			m := w.synced()
			for i, a := range m.Attributes {
				m.Attributes[i].Value = map[string]string{"id": "secrets.core.completed.s", "subject": "/apis/v1/configmaps"}[a.Name]
				if m.Attributes[i].Value == "" {
					m.Attributes[i].Value = a.Value
				}
			}
			w.marker(subject.Marker("kuberelay", clusterName, configMaps.GroupResource()), m, string(m.Data))
		}, []string{`malformed : id is "secrets.core.completed.s"`, `malformed : the attribute subject is "/apis/v1/configmaps"`}},
		{"a claim with the id of another", func(w *world, b *unstructured.Unstructured) {
			w.raw("", b, nil)
			m := w.claimed()
			w.marker(subject.Claim("kuberelay", clusterName), m, strings.Replace(string(m.Data), `"uid":"A"`, `"uid":"B"`, 1))
		}, []string{"malformed : id is"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.NATS.Cluster = clusterName
			tc.plant(w, w.create(configMaps, name, nil))
			want(t, w.found(), tc.want...)
		})
	}
}

func (w *world) claimed() *event.Message {
	w.t.Helper()
	m, err := w.builder.ClusterClaimed(event.Claim{UID: "A", Claimed: time.Now()})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) synced() *event.Message {
	w.t.Helper()
	m, err := w.builder.Marker(event.SnapshotCompleted, configMaps, "s", 1, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// marker publishes a marker with other data.
func (w *world) marker(subject string, m *event.Message, data string) {
	w.t.Helper()
	msg := natsgo.NewMsg(subject)
	msg.Data = []byte(data)
	for _, a := range m.Attributes {
		msg.Header["ce-"+a.Name] = []string{a.Value}
	}
	if _, err := w.js.PublishMsg(w.t.Context(), msg); err != nil {
		w.t.Fatal(err)
	}
}

// TestHeadersOfNATS verifies that package wire parses the forwarder's messages in both content
// modes, whatever the name of the object.
func TestHeadersOfNATS(t *testing.T) {
	s := natstest.Start(t)
	for _, mode := range []nats.ContentMode{nats.Binary, nats.Structured} {
		prefix := "kuberelay-" + string(mode)
		bus, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{s.URL}, Cluster: clusterName, Stream: strings.ToUpper(string(mode)), SubjectPrefix: prefix}, ContentMode: mode})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bus.Close() })
		if err := bus.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		written, err := natsreader.Connect(t.Context(), natsreader.Options{URLs: []string{s.URL}, Cluster: clusterName, Stream: strings.ToUpper(string(mode)), SubjectPrefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = written.Close() })
		for _, name := range []string{"web", "a.b", "a b", `"a"`, `\`, "%", "%41", "é\u2028", "\x00\n\r\x7f", "\ufffe", "a:b", "=", "\U0001f600", " "} {
			k := wire.Object{Group: "a.b", Resource: "c", Namespace: name, Name: name}
			m, err := event.Builder{Cluster: clusterName}.Message(event.Change{
				Type: event.Created, Cause: event.CauseWatch, Key: event.Key(k), Resource: event.Resource{Group: "a.b", Version: "v1", Resource: "c", Kind: "C", Namespaced: true}, Observed: someTime,
				Object: &event.Object{APIVersion: "a.b/v1", Kind: "C", Namespace: name, Name: name, UID: types.UID(name), ResourceVersion: "1", Body: event.JSON([]byte(`{"a":1}`))},
			})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			bus.Publish(context.Background(), m, func(_ uint64, err error) { done <- err })
			if err := <-done; err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			raw, err := written.LastRaw(t.Context(), wire.Subject(prefix, clusterName, k))
			if err != nil || raw == nil {
				t.Fatalf("%q: found %t, %v", name, raw != nil, err)
			}
			got, err := wire.FromNATS(raw.Headers, raw.Data)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			for _, a := range m.Attributes {
				if got.Get(a.Name) != a.Value {
					t.Errorf("%q: %s is read as %q, want %q", name, a.Name, got.Get(a.Name), a.Value)
				}
			}
			if text, err := got.Text("name"); err != nil || text != name {
				t.Errorf("%q is read as %q, %v", name, text, err)
			}
			if !wire.IsEventOfObject(raw.Headers) {
				t.Errorf("%q: the headers do not show that the message is an event of an object", name)
			}
		}
	}
}
