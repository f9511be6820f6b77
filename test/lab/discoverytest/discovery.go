// Package discoverytest provides a fake of the discovery client of a cluster.
package discoverytest

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"k8s.io/client-go/discovery"
)

// Discovery is a fake discovery client that returns the given API versions.
type Discovery struct {
	discovery.DiscoveryInterface
	discovery.DiscoveryInterfaceWithContext
	Versions []*metav1.APIResourceList // grouped, with the preferred version of each group first
	Failed   []string                  // versions whose discovery fails
	Err      error
	REST     rest.Interface // for the readiness of the API server, which is ready by default
}

var _ discovery.AggregatedDiscoveryInterfaceWithContext = Discovery{}

// RESTClient resolves the ambiguity between the two embedded interfaces, which both have the method.
func (s Discovery) RESTClient() rest.Interface { return s.REST }

// GroupsAndMaybeResourcesWithContext is the method that client-go calls.
func (s Discovery) GroupsAndMaybeResourcesWithContext(context.Context) (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	if s.Err != nil {
		return nil, nil, nil, s.Err
	}
	groups, resources := &metav1.APIGroupList{}, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range s.Versions {
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
	for _, v := range s.Failed {
		gv, _ := schema.ParseGroupVersion(v)
		failed[gv] = errors.New("stale")
	}
	return groups, resources, failed, nil
}

// Without returns a copy without the version.
func (s Discovery) Without(version string) Discovery {
	s.Versions = slices.DeleteFunc(slices.Clone(s.Versions), func(l *metav1.APIResourceList) bool { return l.GroupVersion == version })
	return s
}

// Failing returns a copy in which the discovery of the version fails, as if the server behind its
// APIService didn't respond.
func (s Discovery) Failing(version string) Discovery {
	s = s.Without(version)
	s.Failed = append(slices.Clone(s.Failed), version)
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

// Cluster returns a cluster with the usual resources and some special ones: a resource with the same
// name as one in another group, a resource that only one version of its group has, and resources
// without the verbs list and watch.
func Cluster() Discovery {
	deployments := namespaced("deployments", "deployment", "Deployment", "deploy")
	widgets := namespaced("widgets", "widget", "Widget", "wd")
	return Discovery{Versions: []*metav1.APIResourceList{
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
