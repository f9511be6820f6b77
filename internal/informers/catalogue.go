package informers

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/clientgo/restmapper"
	"github.com/kuberelay/kuberelay/internal/event"
)

// catalogue is what discovery said of the cluster at one moment.
type catalogue struct {
	discovery.DiscoveryInterface // for the shortcut expander, which calls only ServerGroupsAndResources

	groups    []*restmapper.APIGroupResources
	lists     []*metav1.APIResourceList
	resources map[schema.GroupVersionResource]discovered
	versions  map[schema.GroupVersion]bool // those that are shown, also without resources

	// failed are the groups whose discovery failed: of them nothing may be
	// concluded, least of all that a resource is gone.
	failed map[string]error

	// etags are not whole where the API server gave none, or was not asked for them.
	etags etags
}

type discovered struct {
	event.Resource
	verbs metav1.Verbs
}

// discover asks the API server. A group that fails is in failed and no error; an
// error means that nothing is known.
func discover(ctx context.Context, client discovery.DiscoveryInterface) (*catalogue, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, discovery.ToDiscoveryInterfaceWithContext(client))
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	var failed map[schema.GroupVersion]error
	if partial != nil {
		failed = partial.Groups
	}
	return newCatalogue(groups, lists, failed), nil
}

func newCatalogue(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error) *catalogue {
	c := &catalogue{
		resources: map[schema.GroupVersionResource]discovered{},
		versions:  map[schema.GroupVersion]bool{}, failed: map[string]error{},
	}
	for gv, err := range failed {
		c.failed[gv.Group] = err
	}
	if !slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == "" }) {
		// client-go takes «not found» for an aggregated API server, which we
		// do not talk to.
		c.failed[""] = errors.New("the API server does not show its core group")
	}
	byVersion := map[string]*metav1.APIResourceList{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	for _, g := range groups {
		c.addGroup(g, byVersion)
	}
	return c
}

func (c *catalogue) addGroup(g *metav1.APIGroup, lists map[string]*metav1.APIResourceList) {
	group := &restmapper.APIGroupResources{Group: *g, VersionedResources: map[string][]metav1.APIResource{}}
	for _, v := range g.Versions {
		c.versions[schema.GroupVersion{Group: g.Name, Version: v.Version}] = true
		list, ok := lists[v.GroupVersion]
		if !ok {
			continue
		}
		c.lists = append(c.lists, list)
		group.VersionedResources[v.Version] = list.APIResources
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			gvr := schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: r.Name}
			c.resources[gvr] = discovered{verbs: r.Verbs, Resource: event.Resource{
				Group: g.Name, Version: v.Version, Resource: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
			}}
		}
	}
	c.groups = append(c.groups, group)
}

// ServerGroupsAndResources gives what was discovered, without asking again.
func (c *catalogue) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups := make([]*metav1.APIGroup, len(c.groups))
	for i, g := range c.groups {
		groups[i] = &g.Group
	}
	return groups, c.lists, nil
}

// preferred gives each resource of the groups that want accepts once, in its
// group's preferred version, or the first that serves it.
func (c *catalogue) preferred(want func(group string) bool) []event.Resource {
	var all []event.Resource
	for _, g := range c.groups {
		if !want(g.Group.Name) {
			continue
		}
		versions := []string{g.Group.PreferredVersion.Version}
		for _, v := range g.Group.Versions {
			versions = append(versions, v.Version)
		}
		seen := map[string]bool{}
		for _, v := range versions {
			for _, r := range g.VersionedResources[v] {
				d, ok := c.resources[schema.GroupVersionResource{Group: g.Group.Name, Version: v, Resource: r.Name}]
				if ok && !seen[r.Name] {
					seen[r.Name] = true
					all = append(all, d.Resource)
				}
			}
		}
	}
	return all
}

func (c *catalogue) watchable(r event.Resource) bool {
	verbs := c.resources[r.GroupVersionResource()].verbs
	return slices.Contains(verbs, "list") && slices.Contains(verbs, "watch")
}

func (c *catalogue) watchableInAny(gr schema.GroupResource) bool {
	for gvr, d := range c.resources {
		if gvr.GroupResource() == gr && c.watchable(d.Resource) {
			return true
		}
	}
	return false
}

// gone tells whether it is certain that the cluster does not serve the resource
// in any version.
func (c *catalogue) gone(gr schema.GroupResource) bool {
	if _, failed := c.failed[gr.Group]; failed {
		return false
	}
	for gvr := range c.resources {
		if gvr.GroupResource() == gr {
			return false
		}
	}
	return true
}
