package publishtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Cluster is the cluster name of all messages in the contract's tests.
const Cluster = "test.cluster" // contains a dot, which separates the tokens of a subject

// Resource is the resource of all objects in the contract's tests.
var Resource = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}

// Object is a state of an object, from which tests build messages.
type Object struct {
	Name     string
	UID      string // the default is derived from the name
	Version  int
	Data     string
	Epoch    uint16
	Deleted  bool
	Digest   event.Digest
	Observed time.Time // the default is a fixed time
}

// Key returns the object's key.
func (o Object) Key() event.Key { return Resource.Key("default", o.Name) }

// Message returns the event for the object's state, with the given expected position.
func (o Object) Message(t testing.TB, expected uint64) *event.Message {
	t.Helper()
	if o.UID == "" {
		o.UID = "uid-of-" + o.Name
	}
	if o.Observed.IsZero() {
		o.Observed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	}
	version := strconv.Itoa(o.Version)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "data": o.Data,
		"metadata": map[string]string{"name": o.Name, "namespace": "default", "resourceVersion": version, "uid": o.UID},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: o.Key(), Resource: Resource, Epoch: o.Epoch,
		Observed: o.Observed,
		Object: &event.Object{
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: o.Name, UID: types.UID(o.UID), ResourceVersion: version,
			Body: event.JSON(body), Digest: o.Digest,
		},
	}
	if o.Deleted {
		c.Type = event.Deleted
	}
	m, err := event.Builder{Cluster: Cluster}.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	m.Expected = expected
	return m
}

// Changed returns an update in the data form event.DataChange, with the attributes that only this
// form has. The version must be at least 2.
func Changed(t testing.TB, name string, version int, expected uint64) *event.Message {
	t.Helper()
	state := func(version int) *event.Object {
		body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","uid":"u-3","resourceVersion":"%d"},"a,b %% é":1000000000000000%d}`, name, version, version)
		return &event.Object{
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: name, UID: "u-3", ResourceVersion: strconv.Itoa(version),
			Body: event.JSON([]byte(body)), Digest: event.Digest{0xab, byte(version)},
		}
	}
	m, err := event.Builder{Cluster: Cluster, Data: event.DataChange}.Message(event.Change{
		Type: event.Updated, Cause: event.CauseWatch, Key: Resource.Key("default", name), Resource: Resource,
		Observed: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Object: state(version), Previous: strconv.Itoa(version - 1), Before: state(version - 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	for attribute, want := range map[string]string{"changed": "/a%2Cb%20%25%20%C3%A9", "dataschema": event.SchemaChange} {
		if got := m.Attribute(attribute); got != want {
			t.Fatalf("%s is %q, want %q", attribute, got, want)
		}
	}
	m.Expected = expected
	return m
}
