package discovery

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

func mustDiscover(t *testing.T, s discoverytest.Discovery) *Catalog {
	t.Helper()
	c, err := discover(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDiscoverFailure(t *testing.T) {
	failure := errors.New("no answer")
	if c, err := discover(t.Context(), discoverytest.Discovery{Err: failure}); !errors.Is(err, failure) || c != nil {
		t.Errorf("got %v, %v; want no catalog and the failure", c, err)
	}
}

// TestIsMissing verifies that no resource counts as missing if the discovery of its group failed,
// even in only one version.
func TestIsMissing(t *testing.T) {
	s := discoverytest.Cluster()
	partly := discoverytest.Cluster().Failing("apps/v1beta1").Failing("metrics.k8s.io/v1beta1")
	noCore := discoverytest.Cluster().Without("v1")
	for name, c := range map[string]struct {
		cluster discoverytest.Discovery
		gr      schema.GroupResource
		want    bool
	}{
		"served":                            {s, schema.GroupResource{Group: "apps", Resource: "deployments"}, false},
		"served in another version only":    {s, schema.GroupResource{Group: "apps", Resource: "scrolls"}, false},
		"served, but cannot be watched":     {s, schema.GroupResource{Resource: "bindings"}, false},
		"not served":                        {s, schema.GroupResource{Group: "example.com", Resource: "gadgets"}, true},
		"group not served":                  {s, schema.GroupResource{Group: "example.net", Resource: "widgets"}, true},
		"name of another group's":           {s, schema.GroupResource{Group: "example.com", Resource: "fish"}, true},
		"a version of its group failed":     {partly, schema.GroupResource{Group: "apps", Resource: "scrolls"}, false},
		"its group failed":                  {partly, schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, false},
		"another group failed":              {partly, schema.GroupResource{Group: "example.com", Resource: "gadgets"}, true},
		"the core group is missing":         {noCore, schema.GroupResource{Resource: "pods"}, false},
		"the core group is missing, theirs": {noCore, schema.GroupResource{Group: "example.com", Resource: "gadgets"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mustDiscover(t, c.cluster).IsMissing(c.gr); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
