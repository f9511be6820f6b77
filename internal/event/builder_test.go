package event

import (
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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

// body returns an object of r with the uid and resourceVersion of [change].
func body(r Resource, namespace, name string) []byte {
	metadata := map[string]any{"labels": map[string]any{"app": "web"}, "name": name, "resourceVersion": "12345", "uid": "6f1b"}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	b, err := EncodeJSON(map[string]any{
		"apiVersion": r.APIVersion(), "kind": r.Kind, "metadata": metadata,
		"spec": map[string]any{"replicas": 3, "note": `<a & b> "c" é`},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// change returns an update of an object of r with that name, after alter has modified it.
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

// packed returns an object that a cache holds, with the given text.
func packed(p *Packer, text []byte) *Object {
	o, err := objectFromData(text)
	if err != nil {
		panic(err)
	}
	o.Body = p.Pack(text)
	return o
}

func textOf(o *Object) string {
	text, err := o.Body.JSON()
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestLongestIDs verifies that no id is longer than MaxText, whatever the UID and the version are.
func TestLongestIDs(t *testing.T) {
	for _, as := range []Type{Created, Updated, Deleted, Deselected} {
		for _, repairs := range []bool{false, true} {
			m, err := builder.Message(change(deployments, "default", "web", func(c *Change) {
				c.Type, c.Repairs, c.After = as, repairs, math.MaxUint64
				c.Object.UID = types.UID(strings.Repeat("\x00", maxVersion/2))
				c.Object.ResourceVersion = strings.Repeat("\x00", maxVersion/2)
			}))
			if err != nil {
				t.Fatal(err)
			}
			if len(m.ID) > MaxText || len(m.ID) < maxVersion {
				t.Errorf("%s, repairs %t: the id has %d bytes", as, repairs, len(m.ID))
			}
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
		"a long uid":                   func(c *Change) { c.Object.UID = types.UID(strings.Repeat("u", maxVersion+1)) },
		"a long resourceVersion":       func(c *Change) { c.Object.ResourceVersion = strings.Repeat("1", maxVersion) },
		"a long apiVersion":            func(c *Change) { c.Object.APIVersion = strings.Repeat("v", MaxText+1) },
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
				t.Errorf("the error contains the content of the object: %v", err)
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

// TestTruncatedTakesMetadataByItsExactName verifies that the field Metadata of a custom resource
// does not replace metadata. encoding/json ignores the case of struct fields, and the last match
// wins.
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
		{"collection in a namespace", pods, "a", "", "/api/v1/namespaces/a/pods"},
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

// TestIDInAnotherEpoch verifies that two states with one id, which a restore of etcd can cause, differ in
// their sequence (docs/events.md).
func TestIDInAnotherEpoch(t *testing.T) {
	before, err := builder.Message(change(deployments, "default", "web", func(*Change) {}))
	if err != nil {
		t.Fatal(err)
	}
	after, err := builder.Message(change(deployments, "default", "web", func(c *Change) { c.Epoch = 1 }))
	if err != nil {
		t.Fatal(err)
	}
	if before.ID != after.ID || before.Attribute("sequence") >= after.Attribute("sequence") {
		t.Errorf("ids %s and %s, sequences %s and %s", before.ID, after.ID, before.Attribute("sequence"), after.Attribute("sequence"))
	}
}
