package publishtest

import (
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Typed is an event with the name of its type in docs/schemas.
type Typed struct {
	Type    string
	Message *event.Message
}

// EveryType returns events of every type. The events of objects have all attributes or as few as
// possible, and both data forms. One name contains characters that each binding must encode.
func EveryType(t testing.TB) []Typed {
	t.Helper()
	const odd = "système:\"admin\" 100%\r\nce_id: x 🙂"
	roles := event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
	observed := time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC)
	var all []Typed
	add := func(name string, m *event.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Typed{name, m})
	}
	state := func(version, replicas string) *event.Object {
		return &event.Object{
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "web", UID: "6f1b", ResourceVersion: version, Digest: event.Digest{0xab, 1},
			Body: event.JSON([]byte(`{"metadata":{"name":"web","namespace":"default","uid":"6f1b","resourceVersion":"` + version + `"},"spec":{"replicas":` + replicas + `}}`)),
		}
	}
	for _, form := range []event.DataForm{event.DataObject, event.DataChange} {
		b := event.Builder{Cluster: Cluster, Data: form}
		for name, typ := range map[string]event.Type{
			"created": event.Created, "updated": event.Updated, "deleted": event.Deleted, "snapshot": event.Snapshot, "deselected": event.Deselected,
		} {
			c := event.Change{
				Type: typ, Cause: event.CauseWatch, Key: Resource.Key("default", "web"), Resource: Resource, Observed: observed,
				Object: state("12345", "3"), Before: state("12000", "2"), Previous: "12000", Owner: &event.Owner{Kind: "Deployment", Name: "web"},
			}
			m, err := b.Message(c)
			add(name, m, err)
			c.Truncated = true
			m, err = b.Message(c)
			add(name, m, err)
			if !typ.IsRemoval() {
				continue
			}
			c.Object = event.Acked{UID: "6f1b"}.Identity(c.Key)
			m, err = b.Message(c)
			add(name, m, err)
		}
		m, err := b.Message(event.Change{
			Type: event.Created, Cause: event.CauseWatch, Key: roles.Key("", odd), Resource: roles, Observed: observed,
			Object: &event.Object{Name: odd, UID: "u-1", ResourceVersion: "7", Body: event.JSON([]byte(`{"metadata":{"name":"as in the cluster","uid":"u-1"}}`))},
		})
		add("created", m, err)
	}
	b := event.Builder{Cluster: Cluster}
	m, err := b.Marker(event.SnapshotStarted, Resource, "s", 0, observed)
	add("snapshotStarted", m, err)
	m, err = b.Marker(event.SnapshotCompleted, Resource, "s", 7, observed)
	add("snapshotCompleted", m, err)
	m, err = b.Resolved(event.Point{Resource: Resource, Version: "12345", Objects: 7, AsOf: observed, Taken: observed})
	add("resolved", m, err)
	m, err = b.ClusterClaimed(event.Claim{UID: "u-0", Claimed: observed, Stream: "s", Replaces: "u-9"})
	add("clusterClaimed", m, err)
	m, err = b.WriterStarted("forwarder-7d4b", "s", "kuberelay", 2, observed)
	add("writerStarted", m, err)
	return all
}
