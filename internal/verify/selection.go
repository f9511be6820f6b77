package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/kuberelay/kuberelay/internal/selector"
	"github.com/kuberelay/kuberelay/internal/verify/replica"
)

// resource is a type of object in the API version in which verify lists it.
type resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// selection is the result of applying the configuration to the resources that the cluster serves at
// one moment.
type selection struct {
	served    map[schema.GroupResource]bool
	selected  map[schema.GroupResource]resource
	kinds     map[schema.GroupKind]resource            // the resources that references can select
	versions  map[schema.GroupVersionResource]resource // everything that is served
	failed    map[string]error                         // groups whose discovery failed
	unmatched []string
}

// as returns a resource in the API version of an event. When the preferred version changes, the
// last event of an unchanged object keeps the old version. If the cluster no longer serves that
// version, as returns false, and the data can't be compared.
func (s *selection) as(r resource, e replica.Event) (resource, bool) {
	if e.API == "" || e.API == r.GroupVersion().String() {
		return r, true
	}
	gv, err := schema.ParseGroupVersion(e.API)
	if err != nil {
		return r, true // the event is reported as malformed
	}
	other, served := s.versions[gv.WithResource(r.Resource)]
	if !served {
		return r, false
	}
	return other, true
}

// selectors are the resource selectors of the configuration.
type selectors struct{ include, exclude, unlessNamed []selector.Selector }

func parseSelectors(o Options) (s selectors, err error) {
	for _, list := range []struct {
		texts []string
		to    *[]selector.Selector
	}{{o.Resources, &s.include}, {o.ExcludeResources, &s.exclude}, {o.UnlessNamed, &s.unlessNamed}} {
		for _, text := range list.texts {
			parsed, err := selector.Parse(text)
			if err != nil {
				return s, fmt.Errorf("resource selector %q: %w", text, err)
			}
			*list.to = append(*list.to, parsed)
		}
	}
	return s, nil
}

// discovered is a result of discovery. client-go reads it instead of sending the requests again.
type discovered struct {
	discovery.DiscoveryInterface
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
}

func (d discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return d.groups, d.lists, nil
}

// selectResources reads what the API server serves and applies the selectors. It records each group
// whose discovery fails in failed. An error means that discovery returned no resources.
func (s selectors) selectResources(ctx context.Context, client discovery.DiscoveryInterface) (*selection, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, discovery.ToDiscoveryInterfaceWithContext(client))
	sel := &selection{
		served: map[schema.GroupResource]bool{}, selected: map[schema.GroupResource]resource{},
		kinds: map[schema.GroupKind]resource{}, failed: map[string]error{},
	}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv, err := range partial.Groups {
			sel.failed[gv.Group] = err
		}
	case err != nil:
		return nil, fmt.Errorf("discover the resources of the cluster: %w", err)
	}
	r := newResolver(discovered{client, groups, lists})
	sel.versions = r.byVersion
	excluded, quiet := r.resolveAll(s.exclude), r.resolveAll(s.unlessNamed)
	for _, all := range r.versions {
		for _, x := range all { // the preferred version first
			sel.served[x.GroupResource()] = true
			gk := schema.GroupKind{Group: x.Group, Kind: x.Kind}
			_, taken := sel.kinds[gk]
			if !taken && !excluded[x.GroupResource()] && !quiet[x.GroupResource()] && r.watchable[x.GroupVersionResource] {
				sel.kinds[gk] = x
			}
		}
	}
	for _, named := range s.include {
		found := r.resolve(named)
		if len(found) == 0 {
			sel.unmatched = append(sel.unmatched, named.String())
		}
		for _, x := range found {
			gr := x.GroupResource()
			_, taken := sel.selected[gr]
			if taken || excluded[gr] || quiet[gr] && named.IsWildcard() || !r.watchable[x.GroupVersionResource] {
				continue
			}
			sel.selected[gr] = x
		}
	}
	return sel, nil
}

// resolver resolves selectors as kubectl does.
type resolver struct {
	groups    []*metav1.APIGroup
	mapper    meta.RESTMapper
	byVersion map[schema.GroupVersionResource]resource
	versions  map[string][]resource // the resources of each group, those in the preferred version first
	watchable map[schema.GroupVersionResource]bool
}

func newResolver(d discovered) *resolver {
	r := &resolver{
		groups: d.groups, byVersion: map[schema.GroupVersionResource]resource{},
		versions: map[string][]resource{}, watchable: map[schema.GroupVersionResource]bool{},
	}
	groups, _ := restmapper.GetAPIGroupResources(d) // discovered returns no error
	r.mapper = restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), d, nil)
	for _, g := range groups {
		preferred := g.Group.PreferredVersion.Version
		r.addVersion(g, preferred)
		for _, v := range g.Group.Versions {
			if v.Version != preferred {
				r.addVersion(g, v.Version)
			}
		}
	}
	return r
}

func (r *resolver) addVersion(g *restmapper.APIGroupResources, version string) {
	gv := schema.GroupVersion{Group: g.Group.Name, Version: version}
	for _, a := range g.VersionedResources[version] {
		if strings.Contains(a.Name, "/") { // a subresource
			continue
		}
		x := resource{GroupVersionResource: gv.WithResource(a.Name), Kind: a.Kind, Namespaced: a.Namespaced}
		r.byVersion[x.GroupVersionResource] = x
		r.versions[gv.Group] = append(r.versions[gv.Group], x)
		r.watchable[x.GroupVersionResource] = slices.Contains(a.Verbs, "list") && slices.Contains(a.Verbs, "watch")
	}
}

func (r *resolver) resolveAll(selectors []selector.Selector) map[schema.GroupResource]bool {
	all := map[schema.GroupResource]bool{}
	for _, s := range selectors {
		for _, x := range r.resolve(s) {
			all[x.GroupResource()] = true
		}
	}
	return all
}

// resolve returns the resources that a selector selects, each in one version.
func (r *resolver) resolve(s selector.Selector) []resource {
	if s.IsWildcard() {
		var all []resource
		for _, g := range r.groups {
			if s.HasGroup(g.Name) {
				all = append(all, r.wholeGroup(g.Name)...)
			}
		}
		return all
	}
	gvr, _ := s.Resource(r.mapper)
	if x, ok := r.byVersion[gvr]; ok {
		return []resource{x}
	}
	return nil
}

func (r *resolver) wholeGroup(group string) []resource {
	var all []resource
	seen := map[string]bool{}
	for _, x := range r.versions[group] {
		if !seen[x.Resource] {
			seen[x.Resource] = true
			all = append(all, x)
		}
	}
	return all
}

// undecidedGroups returns the groups whose failed discovery might hide selected resources.
func (s selectors) undecidedGroups(sel *selection) []string {
	var groups []string
	for group := range sel.failed {
		open := len(sel.unmatched) > 0 ||
			slices.ContainsFunc(s.include, func(s selector.Selector) bool { return s.IsWildcard() && s.HasGroup(group) })
		if open {
			groups = append(groups, group)
		}
	}
	return groups
}

func sortedResources(m map[schema.GroupResource]resource) []schema.GroupResource {
	return slices.SortedFunc(maps.Keys(m), func(a, b schema.GroupResource) int {
		return strings.Compare(a.String(), b.String())
	})
}
