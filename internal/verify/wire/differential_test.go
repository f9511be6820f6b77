package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/binding"
	"github.com/kuberelay/kuberelay/internal/verify/wire"
)

// The tests in this file compare the forwarder's output with the result of this package's parsers.
// Keys and values are arbitrary, including names that Kubernetes does not allow.

// names are seeds: text that must be escaped in some place, or that has a special meaning.
var names = []string{
	"web", "a.b", "core", "_", "_control", "__", ".", "a_b", "=", "=41", "%", "%41", "a/b", "system:node", "é\u2028", "\x00\x7f", "\u0085", "\ufffe", "\U0001ffff", "\ufffd", "\xff", " \"", "a\tb",
}

func addKeys(f *testing.F) {
	for i, n := range names {
		next := func(by int) string { return names[(i+by)%len(names)] }
		f.Add(n, n, n, n, n)
		f.Add(next(1), next(2), next(3), next(4), n)
		f.Add("prod", "", "pods", "", n)
	}
}

// isNamed reports whether no name is empty. ParseSubject and ParseKey reject empty names.
func isNamed(names ...string) bool {
	for _, n := range names {
		if n == "" {
			return false
		}
	}
	return true
}

func FuzzSubject(f *testing.F) {
	addKeys(f)
	f.Fuzz(func(t *testing.T, cluster, group, resource, namespace, name string) {
		if !isNamed(cluster, resource, name) {
			return
		}
		o := wire.Object{Group: group, Resource: resource, Namespace: namespace, Name: name}
		of := subject.Object("kuberelay", cluster, event.Key(o))
		got, err := wire.ParseSubject("kuberelay", of)
		if want := (wire.Address{Cluster: cluster, Object: o}); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v, want %+v", of, got, err, want)
		}
		if got := wire.Subject("kuberelay", cluster, o); got != of {
			t.Errorf("asks for %q, want %q", got, of)
		}
		if got, want := wire.ClusterFilter("kuberelay", cluster), subject.Cluster("kuberelay", cluster); got != want {
			t.Errorf("asks for %q, want %q", got, want)
		}
		marker := subject.Marker("kuberelay", cluster, event.Key(o).GroupResource())
		got, err = wire.ParseSubject("kuberelay", marker)
		if want := (wire.Address{Cluster: cluster, Kind: wire.OfSnapshot, Object: wire.Object{Group: group, Resource: resource}}); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v, want %+v", marker, got, err, want)
		}
		claim := subject.Claim("kuberelay", cluster)
		got, err = wire.ParseSubject("kuberelay", claim)
		if want := (wire.Address{Cluster: cluster, Kind: wire.OfClaim}); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v, want %+v", claim, got, err, want)
		}
	})
}

func FuzzKey(f *testing.F) {
	addKeys(f)
	f.Fuzz(func(t *testing.T, cluster, group, resource, namespace, name string) {
		if !isNamed(cluster, resource, name) {
			return
		}
		o := wire.Object{Group: group, Resource: resource, Namespace: namespace, Name: name}
		k := event.Key(o)
		for key, want := range map[string]wire.Address{
			event.PartitionKey(cluster, k):                       {Object: o},
			event.MarkerPartitionKey(cluster, k.GroupResource()): {Kind: wire.OfSnapshot, Object: wire.Object{Group: group, Resource: resource}},
			event.ClaimPartitionKey(cluster):                     {Kind: wire.OfClaim},
			event.WriterPartitionKey(cluster, name, len(name)):   {Kind: wire.OfWriter, Topic: name, Partition: len(name)},
		} {
			want.Cluster = cluster
			if got, err := wire.ParseKey(key); err != nil || got != want {
				t.Errorf("%q is read as %+v, %v, want %+v", key, got, err, want)
			}
			if !strings.HasPrefix(key, wire.KeyPrefix(cluster)) {
				t.Errorf("%q does not begin with %q", key, wire.KeyPrefix(cluster))
			}
		}
		for _, version := range []string{"v1", ""} {
			want := event.Resource{Group: group, Version: version, Resource: resource}.Path(k)
			if got := wire.Path(o, version); got != want {
				t.Errorf("the path is %q, want %q", got, want)
			}
		}
	})
}

// FuzzAddresses verifies that the parsers of this package and of the forwarder return the same
// result and reject the same input. The only difference is that the parser of this package rejects
// empty names.
func FuzzAddresses(f *testing.F) {
	for _, s := range []string{
		"kuberelay.prod.core.pods.default.web", "kuberelay.prod._control.snapshot.core.pods", "kuberelay.prod._control.cluster._.claimed", "kuberelay.prod.=63ore.pods._.=2e",
		"kuberelay.prod.core.pods.=5F.=2E", "kuberelay.prod.a_=5F.pods._.=", "kuberelay.prod.=2Ea.pods._.a=4", "prod/core/pods/_/web", "prod/%63ore/pods/%5F/%00", "prod/_control/writer/t/01", "prod/_control/writer/t/1",
		"prod/%5Fa/pods/_/%EF%BF%BE", "prod/core/pods/_/%", "prod/_control/cluster/_/claimed",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := wire.ParseSubject("kuberelay", s)
		prefix, cluster, k, marker, theirs := subject.Parse(s)
		if theirs == nil && prefix == "kuberelay" && isAddress(cluster, k, marker) != (err == nil) || theirs != nil && err == nil {
			t.Errorf("subject %q: got %v, the forwarder %v", s, err, theirs)
		}
		if err == nil && (a.Cluster != cluster || event.Key(a.Object) != k || (a.Kind != wire.OfObject) != marker) {
			t.Errorf("subject %q: got %+v, the forwarder %q %+v", s, a, cluster, k)
		}
		a, err = wire.ParseKey(s)
		marker = false
		if cluster, k, theirs = event.ParsePartitionKey(s); theirs != nil {
			marker = true
			cluster, k, theirs = event.ParseMarkerPartitionKey(s)
		}
		if a.Kind == wire.OfWriter && a.Topic == "" && err != nil {
			return // a writer's marker without the name of a topic
		}
		if theirs == nil && isAddress(cluster, k, marker) != (err == nil) || theirs != nil && err == nil {
			t.Errorf("key %q: got %v, the forwarder %v", s, err, theirs)
		}
		if err == nil && (a.Cluster != cluster || event.Key(a.Object) != k || (a.Kind != wire.OfObject) != marker) {
			t.Errorf("key %q: got %+v, the forwarder %q %+v", s, a, cluster, k)
		}
	})
}

func isAddress(cluster string, k event.Key, marker bool) bool {
	if marker {
		return isNamed(cluster) && (k == event.Key{} || isNamed(k.Resource))
	}
	return isNamed(cluster, k.Resource, k.Name)
}

// FuzzEvent verifies that this package parses the attributes and data of the forwarder's events, on
// Kafka and in structured mode. Package verify tests NATS headers with a server.
func FuzzEvent(f *testing.F) {
	for i, n := range names {
		f.Add(n, names[(i+1)%len(names)], names[(i+2)%len(names)], uint16(i), uint8(i), "12345")
	}
	f.Add("web", "default", "A", uint16(9999), uint8(1), "18446744073709551616")
	f.Add("web", "default", "A", uint16(1), uint8(1), "v1.2")
	f.Add("web", "default", "A", uint16(65535), uint8(2), "0")
	f.Add("web", "default", strings.Repeat("\x00", 1010), uint16(1), uint8(1), strings.Repeat("\x00", 14)) // the longest id
	f.Add("web", "default", strings.Repeat("A", 5000), uint16(1), uint8(1), "1")                           // no event exists
	f.Fuzz(func(t *testing.T, name, namespace, uid string, epoch uint16, kind uint8, version string) {
		epoch = min(epoch, event.LastEpoch)
		m, err := build(name, namespace, uid, epoch, kind, version)
		if err != nil || len(version) > 20 && strings.Trim(version, "0123456789") == "" && version[0] == '0' {
			return // no such event or version exists (KEP-5504)
		}
		want := map[string]string{}
		for _, a := range m.Attributes {
			want[a.Name] = a.Value
		}
		for _, structured := range []bool{false, true} {
			r, err := binding.Encode(m, structured)
			if err != nil {
				t.Fatal(err)
			}
			headers := make([]wire.Header, len(r.Headers))
			for i, h := range r.Headers {
				headers[i] = wire.Header(h)
			}
			got, err := wire.FromKafka(headers, r.Value)
			if err != nil {
				t.Fatalf("structured %t: %v", structured, err)
			}
			for name, v := range want {
				if got.Get(name) != v {
					t.Errorf("structured %t: %s is read as %q, want %q", structured, name, got.Get(name), v)
				}
			}
			compare(t, got, name, namespace, uid, epoch, version)
			native, err := wire.ParseTree(m.Data)
			if read, err2 := wire.ParseTree(got.Data); err != nil || err2 != nil || !reflect.DeepEqual(read, native) {
				t.Errorf("structured %t: the data is read as %v, want %v", structured, read, native)
			}
		}
	})
}

func build(name, namespace, uid string, epoch uint16, kind uint8, version string) (*event.Message, error) {
	all := []event.Type{event.Created, event.Updated, event.Deleted, event.Snapshot, event.Deselected}
	r := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: namespace != ""}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version},
	})
	if err != nil {
		return nil, err
	}
	m, err := event.Builder{Cluster: "prod"}.Message(event.Change{
		Type: all[int(kind)%len(all)], Cause: event.CauseWatch, Key: r.Key(namespace, name), Resource: r, Epoch: epoch, Observed: time.Unix(1, 0), After: 7, Truncated: kind%7 == 0,
		Object: &event.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: version, Body: event.JSON(body)},
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func compare(t *testing.T, got wire.Event, name, namespace, uid string, epoch uint16, version string) {
	t.Helper()
	for attribute, want := range map[string]string{"name": name, "namespace": namespace, "uid": uid, "resourceversion": version} {
		if text, err := got.Text(attribute); err != nil || text != want {
			t.Errorf("%s is read as %q, %v, want %q", attribute, text, err, want)
		}
	}
	text, err := got.Text("sequence")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := wire.ParseSequence(text); err != nil || s.Epoch != epoch || !s.Is(version) {
		t.Errorf("the sequence %q is read as %+v, %v, want epoch %d, version %q", text, s, err, epoch, version)
	}
	if _, err := wire.Time(got.Get("time")); err != nil {
		t.Error(err)
	}
}

// FuzzDigest verifies that the digest of any object equals the digest that the forwarder computes.
func FuzzDigest(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"metadata":{"resourceVersion":"1","generation":2,"name":"a"},"b":1.50,"a":[1e3,-0,null,true]}`, `{"a":"<&>\u2028\u0001\ud800é\"\\/"}`, `{"metadata":[],"é":{"z":1,"a":{}}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		object, err := wire.ParseTree([]byte(s))
		if err != nil {
			return
		}
		before := maps.Clone(object)
		got, err := wire.Digest(object)
		if err != nil {
			t.Fatal(err)
		}
		want, err := decode.DigestOf(event.JSON([]byte(s)))
		if err == nil && got != want.String() {
			t.Errorf("%s: got %s, want %s", s, got, want)
		}
		if !reflect.DeepEqual(object, before) {
			t.Errorf("%s was changed to %v", s, object)
		}
	})
}

func TestMarkersAreReadAsTheForwarderMakesThem(t *testing.T) {
	b := event.Builder{Cluster: "prod"}
	now := time.Unix(1700000000, 1).UTC()
	claim, err := b.ClusterClaimed(event.Claim{UID: "A", Replaces: "B", Epoch: 7, Claimed: now})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.ParseClaim(claim.Data); err != nil || got != (wire.ClaimData{UID: "A", Replaces: "B", Epoch: 7, Claimed: now}) {
		t.Errorf("got %+v, %v", got, err)
	}
	writer, err := b.WriterStarted("pod", "s", "t", 3, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.ParseWriter(writer.Data); err != nil || got != (wire.WriterData{Topic: "t", Partition: 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	snapshot, err := b.Marker(event.SnapshotCompleted, event.Resource{Group: "apps", Version: "v1", Resource: "deployments"}, "s", 5, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.ParseSnapshot(snapshot.Data); err != nil || got != (wire.SnapshotData{Group: "apps", Resource: "deployments", Count: 5}) {
		t.Errorf("got %+v, %v", got, err)
	}
	point, err := b.Resolved(event.Point{Resource: event.Resource{Group: "apps", Version: "v1", Resource: "deployments"}, Version: "9", Objects: 5, AsOf: now, Taken: now})
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string][]string{}
	for _, a := range point.Attributes {
		headers["ce-"+a.Name] = []string{a.Value}
	}
	read, err := wire.FromNATS(headers, point.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{point.Data, nil} {
		read.Data = data
		if got, err := wire.ParsePoint(read); err != nil || got != (wire.Point{Group: "apps", Resource: "deployments", Version: "9", Objects: 5, AsOf: now}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	read.Data = []byte(`{"group":"apps","resource":"deployments","resourceVersion":"8","asOf":"2023-11-14T22:13:20.000000001Z","objects":5}`)
	if got, err := wire.ParsePoint(read); err == nil {
		t.Errorf("no error for data that differs from the attributes: %+v", got)
	}
	for m, kind := range map[*event.Message]wire.Kind{claim: wire.OfClaim, writer: wire.OfWriter, snapshot: wire.OfSnapshot, point: wire.OfResolved} {
		a, err := wire.ParseKey(m.Attribute("partitionkey"))
		if err != nil || a.Kind != kind || !wire.Type(m.Attribute("type")).Marks(kind) {
			t.Errorf("%s: got %+v, %v", m.ID, a, err)
		}
		r, err := binding.EncodeControl(m)
		if err != nil {
			t.Fatal(err)
		}
		headers := make([]wire.Header, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = wire.Header(h)
		}
		e, err := wire.ControlFromKafka(headers)
		want := string(m.Data)
		if kind == wire.OfResolved {
			want = ""
		}
		if err != nil || e.Get("id") != m.ID || string(e.Data) != want {
			t.Errorf("%s on Kafka: got id %q, data %s, %v", m.ID, e.Get("id"), e.Data, err)
		}
	}
}

func ExampleParseSequence() {
	fmt.Println(wire.ParseSequence("0001.00000000000000012345"))
	// Output: {1 12345} <nil>
}
