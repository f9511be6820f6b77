package event

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

var (
	observed    = time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.FixedZone("CET", 3600))
	builder     = Builder{Cluster: "prod-eu"}
	deployments = Resource{"apps", "v1", "deployments", "Deployment", true}
	pods        = Resource{"", "v1", "pods", "Pod", true}
	nodes       = Resource{"", "v1", "nodes", "Node", false}
	clusterRole = Resource{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false}
	widgets     = Resource{"example.com", "v1beta1", "widgets", "Widget", true}
)

var someDigest = Digest{0x01, 0x23, 0xab, 15: 0xff}

// body is an object of r with the uid and resourceVersion of [change].
func body(r Resource, namespace, name string) []byte {
	metadata := map[string]any{"labels": map[string]any{"app": "web"}, "name": name, "resourceVersion": "12345", "uid": "6f1b"}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	b, err := encode(map[string]any{
		"apiVersion": r.APIVersion(), "kind": r.Kind, "metadata": metadata,
		"spec": map[string]any{"replicas": 3, "note": `<a & b> "c" é`},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// before has c know the state before, made of that of its object.
func before(alter func(string) string) func(*Change) {
	return func(c *Change) {
		b := *c.Object
		b.ResourceVersion = c.Previous
		b.Body = JSON([]byte(alter(strings.ReplaceAll(textOf(c.Object), c.Object.ResourceVersion, c.Previous))))
		c.Before = &b
	}
}

var threeReplicas = strings.NewReplacer(`"replicas":3`, `"replicas":2`, `"app":"web"`, `"a,b/c%é":""`)

// change is an update of r's object with that name, to be altered by the test.
func change(r Resource, namespace, name string, alter func(*Change)) Change {
	c := Change{
		Type: Updated, Cause: CauseWatch, Key: r.Key(namespace, name), Resource: r, Observed: observed, Previous: "12000",
		Object: &Object{
			APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: namespace, Name: name,
			UID: "6f1b", ResourceVersion: "12345", Body: JSON(body(r, namespace, name)),
		},
	}
	if alter != nil {
		alter(&c)
	}
	return c
}

// changes are the cases of the golden files.
var changes = []struct {
	name   string
	change Change
}{
	{"created", change(deployments, "default", "web", func(c *Change) { c.Type, c.Previous = Created, "" })},
	{"updated", change(deployments, "default", "web", nil)},
	{"updated-known", change(deployments, "default", "web", before(threeReplicas.Replace))},
	{"updated-known-truncated", change(deployments, "default", "web", func(c *Change) {
		before(threeReplicas.Replace)(c)
		c.Truncated = true
	})},
	{"deleted", change(deployments, "default", "web", func(c *Change) { c.Type = Deleted })},
	{"deleted-unknown", change(deployments, "default", "web", func(c *Change) {
		c.Type, c.Cause, c.Object.Body = Deleted, CauseReconcile, Body{}
	})},
	{"deleted-unknown-cluster-scoped", change(nodes, "", "node-1", func(c *Change) {
		c.Type, c.Cause, c.Object.Body, c.Object.APIVersion, c.Object.Kind = Deleted, CauseReconcile, Body{}, "", ""
	})},
	{"deleted-unknown-type", change(widgets, "default", "web", func(c *Change) {
		c.Type, c.Cause = Deleted, CauseReconcile
		c.Object = Acked{UID: "6f1b", ResourceVersion: "12345"}.Identity(c.Key)
		c.Resource = ResourceOf(c.Key, c.Object) // neither version nor kind
	})},
	{"deselected", change(deployments, "default", "web", func(c *Change) { c.Type, c.After = Deselected, 77 })},
	{"deselected-unknown", change(deployments, "default", "web", func(c *Change) {
		c.Type, c.Cause, c.Object.Body = Deselected, CauseReconcile, Body{}
	})},
	{"owned", change(pods, "default", "web-0", func(c *Change) { c.Owner = &Owner{Kind: "Deployment", Name: "web"} })},
	{"selected-again", change(deployments, "default", "web", func(c *Change) { c.Type, c.After = Created, 78 })},
	{"projected", change(deployments, "default", "web", func(c *Change) { c.Object.Digest = someDigest })},
	{"projected-anew", change(deployments, "default", "web", func(c *Change) {
		c.Previous, c.After, c.Object.Digest = c.Object.ResourceVersion, 79, someDigest
	})},
	{"snapshot", change(deployments, "default", "web", func(c *Change) { c.Type, c.Cause, c.Previous = Snapshot, CauseSnapshot, "" })},
	{"truncated", change(deployments, "default", "web", func(c *Change) { c.Truncated = true })},
	{"restored-cluster", change(deployments, "default", "web", func(c *Change) { c.Epoch = 1 })},
	{"odd-resource-version", change(widgets, "default", "web", func(c *Change) {
		c.Object.ResourceVersion, c.Previous = "v7-a", "v6"
		c.Object.Body = JSON(bytes.ReplaceAll(c.Object.Body.bytes, []byte("12345"), []byte("v7-a")))
	})},
	{"core", change(pods, "default", "web-0", nil)},
	{"cluster-scoped", change(nodes, "", "ip-10-0-0-1.ec2.internal", nil)},
	{"name-colon", change(clusterRole, "", "system:node", nil)},
	{"name-wildcards", change(clusterRole, "", "*.>", nil)},
	{"name-slash-percent", change(clusterRole, "", "a/../%2F?b#c", nil)},
	{"name-control", change(clusterRole, "", "a\r\nce-id: b\x00", nil)},
	{"name-unicode", change(clusterRole, "", "é 日本 🙂 \"\\", nil)},
}

func TestMessageGolden(t *testing.T) {
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			m, err := builder.Message(tt.change)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, tt.name, m)
			checkWithSDK(t, m)
			checkChange(t, tt.change, m)
			o := tt.change.Object
			want := Acked{UID: string(o.UID), ResourceVersion: o.ResourceVersion, Epoch: tt.change.Epoch, Deleted: tt.change.Type.Gone(), Deselected: tt.change.Type == Deselected, Digest: o.Digest}
			if m.Acked != want || m.Key != tt.change.Key || m.Marker || m.ID != m.Attribute("id") {
				t.Errorf("message %+v, want acked %+v and key %+v", m, want, tt.change.Key)
			}
		})
	}
}

func TestMarkerGolden(t *testing.T) {
	tests := []struct {
		name    string
		typ     Type
		r       Resource
		count   int
		session string
	}{
		{"marker-started", SnapshotStarted, pods, 0, "01J5"},
		{"marker-completed", SnapshotCompleted, deployments, 1234, "01J5"},
		{"marker-hostile", SnapshotCompleted, deployments, 1, "a\nb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := builder.Marker(tt.typ, tt.r, tt.session, tt.count, observed)
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, tt.name, m)
			checkWithSDK(t, m)
			if want := (Key{Group: tt.r.Group, Resource: tt.r.Resource}); m.Key != want || !m.Marker || m.Acked != (Acked{}) {
				t.Errorf("marker %+v, want key %+v", m, want)
			}
		})
	}
}

// checkGolden compares both content modes with testdata: <name>.binary holds a
// line for each attribute, then the data; <name>.json the structured event.
func checkGolden(t *testing.T, name string, m *Message) {
	t.Helper()
	var binary strings.Builder
	for _, a := range m.Attributes {
		binary.WriteString(a.Name + ": " + a.Value + "\n")
	}
	binary.WriteString("\n" + string(m.Data) + "\n")
	structured, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string]string{name + ".binary": binary.String(), name + ".json": string(structured) + "\n"} {
		path := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
}

func TestMessageRefuses(t *testing.T) {
	tests := map[string]func(*Change){
		"no type":                      func(c *Change) { c.Type = "" },
		"a marker's type":              func(c *Change) { c.Type = SnapshotStarted },
		"no cause":                     func(c *Change) { c.Cause = "" },
		"no time":                      func(c *Change) { c.Observed = time.Time{} },
		"no object":                    func(c *Change) { c.Object = nil },
		"another resource":             func(c *Change) { c.Resource = nodes },
		"another name":                 func(c *Change) { c.Key.Name = "other" },
		"another namespace":            func(c *Change) { c.Key.Namespace = "other" },
		"no name":                      func(c *Change) { c.Key.Name, c.Object.Name = "", "" },
		"no uid":                       func(c *Change) { c.Object.UID = "" },
		"no resourceVersion":           func(c *Change) { c.Object.ResourceVersion = "" },
		"no body":                      func(c *Change) { c.Object.Body = Body{} },
		"truncated, body not JSON":     func(c *Change) { c.Truncated, c.Object.Body = true, JSON([]byte("canary")) },
		"truncated, body has no parts": func(c *Change) { c.Truncated, c.Object.Body = true, JSON([]byte(`{"Metadata":"canary"}`)) },
	}
	for name, alter := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := builder.Message(change(deployments, "default", "web", alter))
			if err == nil {
				t.Fatalf("Message = %+v, want an error", m)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("the error holds the object's content: %v", err)
			}
		})
	}
	if _, err := (Builder{}).Message(change(pods, "a", "b", nil)); err == nil {
		t.Error("Message without a cluster's name, want an error")
	}
	if _, err := (Builder{Cluster: "c", Data: "patch"}).Message(change(pods, "a", "b", nil)); err == nil {
		t.Error("Message with an unknown form of data, want an error")
	}
}

func TestMarkerRefuses(t *testing.T) {
	tests := map[string]func() (*Message, error){
		"an object's type": func() (*Message, error) { return builder.Marker(Snapshot, pods, "s", 0, observed) },
		"no resource":      func() (*Message, error) { return builder.Marker(SnapshotStarted, Resource{}, "s", 0, observed) },
		"no session":       func() (*Message, error) { return builder.Marker(SnapshotStarted, pods, "", 0, observed) },
		"no time":          func() (*Message, error) { return builder.Marker(SnapshotStarted, pods, "s", 0, time.Time{}) },
		"no cluster":       func() (*Message, error) { return Builder{}.Marker(SnapshotStarted, pods, "s", 0, observed) },
	}
	for name, marker := range tests {
		t.Run(name, func(t *testing.T) {
			if m, err := marker(); err == nil {
				t.Errorf("Marker = %+v, want an error", m)
			}
		})
	}
}

// encoding/json matches the fields of a struct regardless of case, and the last
// one wins: a custom resource with a field Metadata must not replace metadata.
func TestTruncatedTakesMetadataByItsExactName(t *testing.T) {
	m, err := builder.Message(change(widgets, "a", "b", func(c *Change) {
		c.Truncated = true
		c.Object.Body = JSON([]byte(`{"metadata":{"name":"b"},"METADATA":{"name":"evil"},"Metadata":1}`))
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"b"}}`
	if got := string(m.Data); got != want {
		t.Errorf("data %s, want %s", got, want)
	}
}

func TestResourcePath(t *testing.T) {
	tests := []struct {
		name              string
		r                 Resource
		namespace, object string
		want              string
	}{
		{"namespaced", deployments, "default", "web", "/apis/apps/v1/namespaces/default/deployments/web"},
		{"core", pods, "default", "web-0", "/api/v1/namespaces/default/pods/web-0"},
		{"cluster-scoped", nodes, "", "a.b", "/api/v1/nodes/a.b"},
		{"collection", deployments, "", "", "/apis/apps/v1/deployments"},
		{"colon", clusterRole, "", "system:node", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"},
		{"version unknown", ResourceOf(deployments.Key("a", "b"), &Object{}), "a", "b", "/apis/apps/namespaces/a/deployments/b"},
		{"slash", nodes, "", "a/b", "/api/v1/nodes/a%2Fb"},
		{"query and fragment", nodes, "", "a?b#c", "/api/v1/nodes/a%3Fb%23c"},
		{"percent", nodes, "", "%2F", "/api/v1/nodes/%252F"},
		{"space, newline, letter", nodes, "", " \né", "/api/v1/nodes/%20%0A%C3%A9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.r.Path(tt.r.Key(tt.namespace, tt.object)); got != tt.want {
				t.Errorf("Path = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSequenceOrder(t *testing.T) {
	ordered := []string{
		sequence(0, "9"), sequence(0, "10"), sequence(0, "18446744073709551615"),
		sequence(1, "1"), sequence(2, "0"), sequence(10, "5"), sequence(9999, "0"),
	}
	for i := range len(ordered) - 1 {
		if ordered[i] >= ordered[i+1] {
			t.Errorf("%q is not before %q", ordered[i], ordered[i+1])
		}
	}
}

func TestWriterStartedGolden(t *testing.T) {
	m, err := builder.WriterStarted("forwarder-7d4b", "01j5", "kuberelay", 2, observed)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "writer-started", m)
	checkWithSDK(t, m)
	if m.Key != (Key{}) || !m.Marker || m.Acked != (Acked{}) {
		t.Errorf("marker %+v, want no key", m)
	}
	key := m.Attribute("partitionkey")
	if _, _, err := ParsePartitionKey(key); err == nil || !strings.HasPrefix(key, string(ClusterPartitionKeys(builder.Cluster))) {
		t.Errorf("the partition key %q is an object's, or another cluster's", key)
	}
}
