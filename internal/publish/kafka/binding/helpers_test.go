package binding

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
)

var (
	builder     = event.Builder{Cluster: "prod-eu"}
	observed    = time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.FixedZone("CET", 3600))
	deployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	roles       = event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
)

// named is a message with the name of its golden files.
type named struct {
	name    string
	message *event.Message
}

// messages returns one message of each kind.
func messages(t testing.TB) []named {
	t.Helper()
	build := func(r event.Resource, namespace, name string, alter func(*event.Change)) *event.Message {
		t.Helper()
		c := event.Change{
			Type: event.Updated, Cause: event.CauseWatch, Key: r.Key(namespace, name), Resource: r, Observed: observed, Previous: "12000",
			Object: &event.Object{
				APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: namespace, Name: name, UID: "6f1b", ResourceVersion: "12345",
				Body: event.JSON([]byte(`{"apiVersion":"` + r.APIVersion() + `","kind":"` + r.Kind + `","metadata":{"resourceVersion":"12345","uid":"6f1b"},"spec":{"note":"<a & b> é"}}`)),
			},
		}
		alter(&c)
		m, err := builder.Message(c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	marker, err := builder.Marker(event.SnapshotCompleted, deployments, "01J5", 1234, observed)
	if err != nil {
		t.Fatal(err)
	}
	return []named{
		{"created", build(deployments, "default", "web", func(c *event.Change) { c.Type, c.Previous = event.Created, "" })},
		{"updated", build(deployments, "default", "web", func(c *event.Change) { c.Epoch = 1 })},
		{"deleted", build(deployments, "default", "web", func(c *event.Change) { c.Type = event.Deleted })},
		{"deleted-unknown", build(deployments, "default", "web", func(c *event.Change) {
			c.Type, c.Cause, c.Object.Body = event.Deleted, event.CauseReconcile, event.Body{}
		})},
		{"truncated", build(deployments, "default", "web", func(c *event.Change) { c.Truncated = true })},
		{"odd-name", build(roles, "", "système:\"admin\" 100%\r\nce_id: x 🙂", func(*event.Change) {})},
		{"marker", marker},
	}
}

func mustEncode(t testing.TB, m *event.Message, structured bool) recordbatch.Record {
	t.Helper()
	r, err := Encode(m, structured)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mode(structured bool) string {
	if structured {
		return "structured"
	}
	return "binary"
}
