package relay

import (
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
)

// TestExplainFollow verifies that an explanation lists the KUBERELAY_FOLLOW entries that match no
// watched or followable resource.
func TestExplainFollow(t *testing.T) {
	deployments := event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	x := explain.Explanation{
		Resources:  []explain.Explained{{Resource: deployments, Watched: explain.Everywhere}},
		Followable: []event.Resource{{Group: "cluster.x-k8s.io", Version: "v1", Resource: "machines", Kind: "Machine"}},
	}
	s := config.Config{}
	s.Watch.Follow = config.List{"ownerReferences", "deployments.apps:spec.ref", "deploymnts.apps:spec.ref", "machines.cluster.x-k8s.io:spec.ref", "pods:spec.ref"}
	got, err := explainShape(x, Config{Settings: s})
	if want := []string{"deploymnts.apps:spec.ref", "pods:spec.ref"}; err != nil || !slices.Equal(got.UnmatchedFollow, want) {
		t.Errorf("got %q, %v, want %q", got.UnmatchedFollow, err, want)
	}
}

// TestExplainShape verifies that an explanation names the hashed fields of watched resources, and
// the fields that are published although they are known to hold secrets.
func TestExplainShape(t *testing.T) {
	x := explain.Explanation{Resources: []explain.Explained{
		{Resource: event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}, Watched: explain.Everywhere},
		{Resource: event.Resource{Group: "dex.coreos.com", Version: "v1", Resource: "connectors", Kind: "Connector"}, Watched: explain.Nowhere},
		{Resource: event.Resource{Group: "management.cattle.io", Version: "v3", Resource: "tokens", Kind: "Token"}, Watched: explain.Partly},
	}}
	known := []string{"configmaps.core:.data.release", "tokens.management.cattle.io:.token"}
	for name, tc := range map[string]struct {
		content          config.Content
		hashed, readable []string
	}{
		"by default":       {config.Content{HashKnown: true}, known, nil},
		"without the list": {config.Content{HashFields: config.Paths{"Token:.token", "pods:.spec"}}, []string{"Token:.token"}, known[:1]},
	} {
		got, err := explainShape(x, Config{Settings: config.Config{Content: tc.content}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.HashFields, tc.hashed) || !slices.Equal(got.ReadableFields, tc.readable) {
			t.Errorf("%s: hashed %q, readable %q", name, got.HashFields, got.ReadableFields)
		}
	}
}
