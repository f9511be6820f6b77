package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/clientgo/discovery"
	"github.com/kuberelay/kuberelay/internal/clientgo/restmapper"
)

// resource is a type of object in the version in which it is listed.
type resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// selection is what the configuration selects of what the cluster serves, at one
// moment.
type selection struct {
	served    map[schema.GroupResource]bool
	selected  map[schema.GroupResource]resource
	kinds     map[schema.GroupKind]resource            // those that may be followed
	versions  map[schema.GroupVersionResource]resource // all that is served
	failed    map[string]error                         // groups of which discovery failed
	unmatched []string
}

// as gives a resource in the version of the API in which an event is written, since
// the data of an object that has not changed stays on the bus as it was when another
// version came to be preferred. It is false where that version is not served any more:
// then what the two hold cannot be compared.
func (s *selection) as(r resource, e busEvent) (resource, bool) {
	if e.API == "" || e.API == r.GroupVersion().String() {
		return r, true
	}
	gv, err := schema.ParseGroupVersion(e.API)
	if err != nil {
		return r, true // which the event is reported for
	}
	other, served := s.versions[gv.WithResource(r.Resource)]
	if !served {
		return r, false
	}
	return other, true
}

// selectors are those of the configuration.
type selectors struct{ include, exclude, unlessNamed []string }

// discovered is an answer of discovery; it stands in for the API server where
// client-go would ask a second time.
type discovered struct {
	discovery.DiscoveryInterface
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
}

func (d discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return d.groups, d.lists, nil
}

// selectResources asks the API server what it serves. It fails if that is not
// known at all; a group of which it is not known is in failed.
func (s selectors) selectResources(ctx context.Context, client discovery.DiscoveryInterface) (*selection, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, discovery.ToDiscoveryInterfaceWithContext(client))
	sel := &selection{
		served: map[schema.GroupResource]bool{}, selected: map[schema.GroupResource]resource{}, failed: map[string]error{},
	}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv, err := range partial.Groups {
			sel.failed[gv.Group] = err
		}
	case err != nil:
		return nil, fmt.Errorf("ask the API server what it serves: %w", err)
	}
	r := newResolver(discovered{client, groups, lists})
	sel.versions = r.byVersion
	for _, all := range r.versions {
		for _, x := range all {
			sel.served[x.GroupResource()] = true
		}
	}
	excluded, quiet := r.resolveAll(s.exclude), r.resolveAll(s.unlessNamed)
	sel.kinds = map[schema.GroupKind]resource{}
	for _, all := range r.versions {
		for _, x := range all { // those of the preferred version first
			gk := schema.GroupKind{Group: x.Group, Kind: x.Kind}
			_, taken := sel.kinds[gk]
			if !taken && !excluded[x.GroupResource()] && !quiet[x.GroupResource()] && r.watchable[x.GroupVersionResource] {
				sel.kinds[gk] = x
			}
		}
	}
	for _, selector := range s.include {
		found := r.resolve(selector)
		if len(found) == 0 {
			sel.unmatched = append(sel.unmatched, selector)
		}
		for _, x := range found {
			gr := x.GroupResource()
			_, taken := sel.selected[gr]
			if taken || excluded[gr] || quiet[gr] && strings.HasPrefix(selector, "*") || !r.watchable[x.GroupVersionResource] {
				continue
			}
			sel.selected[gr] = x
		}
	}
	return sel, nil
}

// resolver finds what a selector means, as kubectl does.
type resolver struct {
	discovered
	byVersion map[schema.GroupVersionResource]resource
	versions  map[string][]resource // of a group, those of the preferred version first
	watchable map[schema.GroupVersionResource]bool
	groupOf   []*restmapper.APIGroupResources
}

func newResolver(d discovered) *resolver {
	r := &resolver{
		discovered: d, byVersion: map[schema.GroupVersionResource]resource{},
		versions: map[string][]resource{}, watchable: map[schema.GroupVersionResource]bool{},
	}
	for _, g := range d.groups {
		group := &restmapper.APIGroupResources{Group: *g, VersionedResources: map[string][]metav1.APIResource{}}
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != versions[0] {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, v := range versions {
			for _, l := range d.lists {
				if l.GroupVersion == v {
					r.addList(g.Name, group, l)
				}
			}
		}
		r.groupOf = append(r.groupOf, group)
	}
	return r
}

func (r *resolver) addList(name string, group *restmapper.APIGroupResources, l *metav1.APIResourceList) {
	gv, err := schema.ParseGroupVersion(l.GroupVersion)
	if err != nil {
		return
	}
	group.VersionedResources[gv.Version] = l.APIResources
	for _, a := range l.APIResources {
		if strings.Contains(a.Name, "/") { // a subresource
			continue
		}
		x := resource{GroupVersionResource: gv.WithResource(a.Name), Kind: a.Kind, Namespaced: a.Namespaced}
		r.byVersion[x.GroupVersionResource] = x
		r.versions[name] = append(r.versions[name], x)
		r.watchable[x.GroupVersionResource] = slices.Contains(a.Verbs, "list") && slices.Contains(a.Verbs, "watch")
	}
}

func (r *resolver) resolveAll(selectors []string) map[schema.GroupResource]bool {
	all := map[schema.GroupResource]bool{}
	for _, s := range selectors {
		for _, x := range r.resolve(s) {
			all[x.GroupResource()] = true
		}
	}
	return all
}

// resolve gives the resources that a selector means, each in one version.
func (r *resolver) resolve(selector string) []resource {
	if selector == "*" {
		var all []resource
		for _, g := range r.groups {
			all = append(all, r.wholeGroup(g.Name)...)
		}
		return all
	}
	if group, ok := strings.CutPrefix(selector, "*."); ok {
		return r.wholeGroup(group)
	}
	if x, ok := r.byVersion[r.named(selector)]; ok {
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

// named is what kubectl takes an argument for: a resource, plural, singular or
// short, with version and group, with group, or alone; and then a Kind likewise.
func (r *resolver) named(arg string) schema.GroupVersionResource {
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(r.groupOf), r.discovered, nil)
	full, gr := schema.ParseResourceArg(strings.ToLower(arg))
	if full != nil {
		if gvr, err := mapper.ResourceFor(*full); err == nil {
			return gvr
		}
	}
	if gvr, err := mapper.ResourceFor(gr.WithVersion("")); err == nil {
		return gvr
	}
	gvk, gk := schema.ParseKindArg(arg)
	if gvk != nil {
		if m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
			return m.Resource
		}
	}
	if m, err := mapper.RESTMapping(gk); err == nil {
		return m.Resource
	}
	return schema.GroupVersionResource{}
}

// doubtful gives the groups whose failed discovery leaves open what is selected.
func (s selectors) doubtful(sel *selection) []string {
	var groups []string
	for group := range sel.failed {
		open := len(sel.unmatched) > 0 || slices.Contains(s.include, "*") || slices.Contains(s.include, "*."+group)
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
