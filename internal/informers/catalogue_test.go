package informers

import (
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// stubDiscovery answers as the API server would.
type stubDiscovery struct {
	discovery.DiscoveryInterface
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	err    error
}

func (s stubDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return s.groups, s.lists, s.err
}

// serve adds a group with its versions, the preferred one first.
func (s *stubDiscovery) serve(group string, versions ...*metav1.APIResourceList) {
	g := &metav1.APIGroup{Name: group}
	for _, list := range versions {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: gv.Version})
	}
	g.PreferredVersion = g.Versions[0]
	s.groups = append(s.groups, g)
	s.lists = append(s.lists, versions...)
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
func testCluster() *stubDiscovery {
	s := &stubDiscovery{}
	s.serve("", version("v1",
		namespaced("pods", "pod", "Pod", "po"),
		namespaced("pods/log", "", "Pod"),
		namespaced("secrets", "secret", "Secret"),
		namespaced("events", "event", "Event", "ev"),
		verbs(namespaced("bindings", "binding", "Binding"), "create"),
	))
	deployments := namespaced("deployments", "deployment", "Deployment", "deploy")
	s.serve("apps",
		version("apps/v1", deployments, namespaced("deployments/status", "", "Deployment")),
		version("apps/v1beta1", deployments, namespaced("scrolls", "scroll", "Scroll")))
	s.serve("events.k8s.io", version("events.k8s.io/v1", namespaced("events", "event", "Event", "ev")))
	s.serve("metrics.k8s.io", version("metrics.k8s.io/v1beta1",
		verbs(namespaced("pods", "", "PodMetrics"), "get", "list")))
	widgets := namespaced("widgets", "widget", "Widget", "wd")
	s.serve("example.com", version("example.com/v1", widgets), version("example.com/v1alpha1", widgets))
	s.serve("example.org", version("example.org/v2", widgets, namespaced("fish", "fish", "Fish")))
	return s
}

func mustDiscover(t *testing.T, s *stubDiscovery) *catalogue {
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
	partly := testCluster()
	partly.groups = slices.DeleteFunc(partly.groups, func(g *metav1.APIGroup) bool { return g.Name == "metrics.k8s.io" })
	partly.lists = slices.DeleteFunc(partly.lists, func(l *metav1.APIResourceList) bool {
		return l.GroupVersion == "apps/v1beta1" || l.GroupVersion == "metrics.k8s.io/v1beta1"
	})
	partly.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "apps", Version: "v1beta1"}:           errors.New("stale"),
		{Group: "metrics.k8s.io", Version: "v1beta1"}: errors.New("service unavailable"),
	}}
	noCore := testCluster()
	noCore.groups, noCore.lists = noCore.groups[1:], noCore.lists[1:]

	for name, c := range map[string]struct {
		cluster *stubDiscovery
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
