package informers

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
)

// stubDiscovery answers as the discovery client of a cluster.
type stubDiscovery struct {
	discovery.DiscoveryInterface
	discovery.DiscoveryInterfaceWithContext
	versions []*metav1.APIResourceList // those of a group together, the preferred one first
	failed   []string                  // versions
	err      error
}

var _ discovery.AggregatedDiscoveryInterfaceWithContext = stubDiscovery{}

// RESTClient is in both interfaces.
func (stubDiscovery) RESTClient() rest.Interface { return nil }

// GroupsAndMaybeResourcesWithContext is what client-go asks for.
func (s stubDiscovery) GroupsAndMaybeResourcesWithContext(context.Context) (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	if s.err != nil {
		return nil, nil, nil, s.err
	}
	groups, resources := &metav1.APIGroupList{}, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range s.versions {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		version := metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: gv.Version}
		if n := len(groups.Groups); n == 0 || groups.Groups[n-1].Name != gv.Group {
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: version})
		}
		g := &groups.Groups[len(groups.Groups)-1]
		g.Versions = append(g.Versions, version)
		resources[gv] = list
	}
	failed := map[schema.GroupVersion]error{}
	for _, v := range s.failed {
		gv, _ := schema.ParseGroupVersion(v)
		failed[gv] = errors.New("stale")
	}
	return groups, resources, failed, nil
}

// without leaves a version out.
func (s stubDiscovery) without(version string) stubDiscovery {
	s.versions = slices.DeleteFunc(slices.Clone(s.versions), func(l *metav1.APIResourceList) bool { return l.GroupVersion == version })
	return s
}

// failing is without, but says that it failed, as where the server behind an
// APIService does not answer.
func (s stubDiscovery) failing(version string) stubDiscovery {
	s = s.without(version)
	s.failed = append(slices.Clone(s.failed), version)
	return s
}

func version(gv string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: gv, APIResources: resources}
}

func namespaced(plural, singular, kind string, shortNames ...string) metav1.APIResource {
	return metav1.APIResource{
		Name: plural, SingularName: singular, Kind: kind, ShortNames: shortNames, Namespaced: true,
		Verbs: metav1.Verbs{"create", "get", "list", "watch"},
	}
}

func verbs(r metav1.APIResource, verbs ...string) metav1.APIResource {
	r.Verbs = verbs
	return r
}

// testCluster has, beside what every cluster has, a resource of each awkward kind:
// with the name of another group's, of one version only, that cannot be watched.
func testCluster() stubDiscovery {
	deployments := namespaced("deployments", "deployment", "Deployment", "deploy")
	widgets := namespaced("widgets", "widget", "Widget", "wd")
	return stubDiscovery{versions: []*metav1.APIResourceList{
		version("v1",
			namespaced("pods", "pod", "Pod", "po"),
			namespaced("pods/log", "", "Pod"),
			namespaced("secrets", "secret", "Secret"),
			namespaced("events", "event", "Event", "ev"),
			verbs(namespaced("bindings", "binding", "Binding"), "create")),
		version("apps/v1", deployments, namespaced("deployments/status", "", "Deployment")),
		version("apps/v1beta1", deployments, namespaced("scrolls", "scroll", "Parchment")),
		version("events.k8s.io/v1", namespaced("events", "event", "Event", "ev")),
		version("metrics.k8s.io/v1beta1", verbs(namespaced("pods", "", "PodMetrics"), "get", "list")),
		version("example.com/v1", widgets),
		version("example.com/v1alpha1", widgets),
		version("example.org/v2", widgets, namespaced("fish", "fish", "Fish")),
	}}
}

func mustDiscover(t *testing.T, s stubDiscovery) *catalogue {
	t.Helper()
	c, err := discover(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDiscoverFailure(t *testing.T) {
	failure := errors.New("no answer")
	if c, err := discover(t.Context(), stubDiscovery{err: failure}); !errors.Is(err, failure) || c != nil {
		t.Errorf("got %v, %v; want no catalogue and the failure", c, err)
	}
}

// TestGone: nothing may be concluded of a group whose discovery failed, not even
// in one of its versions.
func TestGone(t *testing.T) {
	s := testCluster()
	partly := testCluster().failing("apps/v1beta1").failing("metrics.k8s.io/v1beta1")
	noCore := testCluster().without("v1")
	for name, c := range map[string]struct {
		cluster stubDiscovery
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
			if got := mustDiscover(t, c.cluster).gone(c.gr); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
