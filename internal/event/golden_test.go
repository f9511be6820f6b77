package event

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/golden"
)

// before returns a function that sets the previous state of a change. alter turns the object's text into
// the text of the previous state.
func before(alter func(string) string) func(*Change) {
	return func(c *Change) {
		b := *c.Object
		b.ResourceVersion = c.Previous
		b.Body = JSON([]byte(alter(strings.ReplaceAll(textOf(c.Object), c.Object.ResourceVersion, c.Previous))))
		c.Before = &b
	}
}

var threeReplicas = strings.NewReplacer(`"replicas":3`, `"replicas":2`, `"app":"web"`, `"a,b/c%é":""`)

// changes lists the changes whose events are in the golden files.
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
			want := Acked{UID: string(o.UID), ResourceVersion: o.ResourceVersion, Epoch: tt.change.Epoch, Deleted: tt.change.Type.IsRemoval(), Deselected: tt.change.Type == Deselected, Digest: o.Digest, Time: 1772597167891}
			if m.Acked != want || m.Key != tt.change.Key || m.Marker || m.ID != m.Attribute("id") {
				t.Errorf("acked %+v of %+v, want %+v of %+v", m.Acked, m.Key, want, tt.change.Key)
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

func TestResolvedGolden(t *testing.T) {
	m, err := builder.Resolved(Point{Resource: deployments, Version: "12345", Objects: 7, AsOf: observed, Taken: observed.Add(1e9)})
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "resolved", m)
	checkWithSDK(t, m)
	if want := (Key{Group: "apps", Resource: "deployments"}); m.Key != want || !m.IsResolved() {
		t.Errorf("message %+v, want key %+v", m, want)
	}
	for _, p := range []Point{{}, {Resource: deployments, AsOf: observed}, {Resource: deployments, Version: "1", AsOf: observed}, {Resource: deployments, Version: "1", Taken: observed}, {Version: "1", AsOf: observed}} {
		if _, err := builder.Resolved(p); err == nil {
			t.Errorf("%+v: no error", p)
		}
	}
}

// checkGolden compares both content modes with testdata: <name>.binary has a line for each
// attribute, then the data, and <name>.json has the structured event.
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
	golden.Check(t, name+".binary", binary.String())
	golden.Check(t, name+".json", string(structured)+"\n")
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
