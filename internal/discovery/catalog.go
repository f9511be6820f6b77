// Package discovery determines which resources an API server serves, which of them are selected, and
// which of those the forwarder may read.
//
// The package draws no conclusion from a failure. A group whose discovery fails is in
// [Catalog.Failed]. If a permission cannot be reviewed, it counts as granted. If the permission is
// actually missing, the request itself fails.
package discovery

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/refusal"
)

// Catalog contains the resources that the API server serves, from one run of discovery.
type Catalog struct {
	discovery.DiscoveryInterface // always nil; the shortcut expander calls only ServerGroupsAndResources

	groups    []*restmapper.APIGroupResources
	lists     []*metav1.APIResourceList
	resources map[schema.GroupVersionResource]discovered

	// Failed contains the error of each group whose discovery failed in at least one version. Draw
	// no conclusion about such a group. For example, a resource that it does not show might still
	// exist.
	Failed map[string]error

	// Kept contains the watched and the excluded resources that stay unchanged although discovery shows
	// them differently or not at all.
	Kept map[schema.GroupResource]Decision

	// etags is incomplete if the API server sent no ETag, or if client-go made the request.
	etags etags
}

type discovered struct {
	event.Resource
	verbs metav1.Verbs
}

// discover runs discovery through client-go. Failed contains the groups that failed. An error means
// that discovery failed as a whole.
func discover(ctx context.Context, client discovery.DiscoveryInterface) (*Catalog, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, discovery.ToDiscoveryInterfaceWithContext(client))
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return nil, err
	}
	var failed map[schema.GroupVersion]error
	if partial != nil {
		failed = partial.Groups
	}
	return newCatalog(groups, lists, failed), nil
}

func newCatalog(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error) *Catalog {
	c := &Catalog{resources: map[schema.GroupVersionResource]discovered{}, Failed: map[string]error{}}
	for gv, err := range failed {
		c.Failed[gv.Group] = refusal.Explain(err)
	}
	if !slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == "" }) {
		// client-go ignores "not found" for /api, because an aggregated API server has no core group.
		// kube-apiserver always has one.
		c.Failed[""] = errors.New("discovery does not list the core group of the API server")
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

func (c *Catalog) addGroup(g *metav1.APIGroup, lists map[string]*metav1.APIResourceList) {
	group := &restmapper.APIGroupResources{Group: *g, VersionedResources: map[string][]metav1.APIResource{}}
	for _, v := range g.Versions {
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

// ServerGroupsAndResources returns the discovered groups and resources, without a request.
func (c *Catalog) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups := make([]*metav1.APIGroup, len(c.groups))
	for i, g := range c.groups {
		groups[i] = &g.Group
	}
	return groups, c.lists, nil
}

// Resource returns the resource that a version of a group serves.
func (c *Catalog) Resource(gvr schema.GroupVersionResource) (event.Resource, bool) {
	d, ok := c.resources[gvr]
	return d.Resource, ok
}

// All returns each resource once. A kept resource has its kept version. Any other resource has the
// preferred version of its group or, if that version does not serve it, the first version that
// does.
func (c *Catalog) All() []event.Resource {
	return c.preferred(func(string) bool { return true })
}

// preferred is like All, but only for the groups for which want returns true.
func (c *Catalog) preferred(want func(group string) bool) []event.Resource {
	var all []event.Resource
	for gr, d := range c.Kept {
		if want(gr.Group) {
			all = append(all, d.Resource)
		}
	}
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
				if _, kept := c.Kept[d.GroupResource()]; ok && !kept && !seen[r.Name] {
					seen[r.Name] = true
					all = append(all, d.Resource)
				}
			}
		}
	}
	return all
}

// keptBy returns the kept resources that a selector selects or excludes.
func (c *Catalog) keptBy(selector string) []event.Resource {
	var all []event.Resource
	for _, d := range c.Kept {
		if d.ExcludedBy == selector || slices.Contains(d.Selectors, selector) {
			all = append(all, d.Resource)
		}
	}
	return all
}

// IsWatchable reports whether the API server can list and watch a resource.
func (c *Catalog) IsWatchable(r event.Resource) bool {
	if d, kept := c.Kept[r.GroupResource()]; kept && d.Resource == r {
		return true
	}
	verbs := c.Verbs(r)
	return slices.Contains(verbs, "list") && slices.Contains(verbs, "watch")
}

// IsWatchableInAnyVersion reports whether the API server can list and watch a resource in at
// least one version.
func (c *Catalog) IsWatchableInAnyVersion(gr schema.GroupResource) bool {
	for gvr, d := range c.resources {
		if gvr.GroupResource() == gr && c.IsWatchable(d.Resource) {
			return true
		}
	}
	return false
}

// Verbs returns the verbs that the API server supports for a resource.
func (c *Catalog) Verbs(r event.Resource) []string {
	return c.resources[r.GroupVersionResource()].verbs
}

// Versions returns the versions that serve a resource, in the order of discovery, with the preferred
// version first. It returns none after Compact.
func (c *Catalog) Versions(gr schema.GroupResource) []string {
	versions := []string{}
	for _, g := range c.groups {
		for _, v := range g.Group.Versions {
			if _, ok := c.resources[gr.WithVersion(v.Version)]; ok && g.Group.Name == gr.Group {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions
}

// IsMissing reports whether discovery no longer shows the resource: its group did not fail, no
// version contains it, and it is not kept. An API server of another Kubernetes version might still
// serve the resource.
func (c *Catalog) IsMissing(gr schema.GroupResource) bool {
	_, failed := c.Failed[gr.Group]
	_, kept := c.Kept[gr]
	return !failed && !kept && !c.Shows(gr)
}

// Shows reports whether discovery shows the resource in any version.
func (c *Catalog) Shows(gr schema.GroupResource) bool {
	for gvr := range c.resources {
		if gvr.GroupResource() == gr {
			return true
		}
	}
	return false
}

// Compact drops the groups and their lists. They are large, and only a selection needs them. Call
// Compact for a catalog that stays in memory.
func (c *Catalog) Compact() { c.groups, c.lists = nil, nil }
