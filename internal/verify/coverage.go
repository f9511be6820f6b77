package verify

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// coverage selects namespaces: the included ones, or all if none is included. It leaves out the
// excluded ones and those whose labels don't match.
type coverage struct {
	include, exclude []string        // an empty include means all, an empty exclude none
	selector         labels.Selector // nil for all

	matching map[string]bool // existing namespaces, and whether their labels match, as of the last list

	// refused contains the resources that RBAC forbids in a namespace, if each namespace is listed
	// separately.
	refused map[namespacedResource]error
}

// namespacedResource is one resource in one namespace.
type namespacedResource struct {
	resource  schema.GroupResource
	namespace string
}

// configured reports whether a namespace is selected if its labels match.
func (c coverage) configured(namespace string) bool {
	return namespace == "" || (len(c.include) == 0 || slices.Contains(c.include, namespace)) && !slices.Contains(c.exclude, namespace)
}

// has reports whether the objects of a namespace are selected. The namespace of cluster-scoped
// objects is "".
func (c coverage) has(namespace string) bool {
	return c.configured(namespace) && (namespace == "" || c.selector == nil || c.matching[namespace])
}

// all reports whether every namespace is selected.
func (c coverage) all() bool { return len(c.include) == 0 && len(c.exclude) == 0 && c.selector == nil }

// maxSeparateLists is the maximum number of namespaces that are listed separately.
const maxSeparateLists = 10

// learnNamespaces reads which namespaces exist, and whether their labels match.
func (c *cluster) learnNamespaces(ctx context.Context) error {
	matching := map[string]bool{}
	r := resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}
	_, err := c.list(ctx, r, scope{}, func(i item) error {
		metadata, _ := i.tree["metadata"].(tree)
		set := labels.Set{}
		if all, ok := metadata["labels"].(tree); ok {
			for name, value := range all {
				set[name], _ = value.(string)
			}
		}
		matching[i.key.Name] = c.coverage.selector == nil || c.coverage.selector.Matches(set)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the namespaces: %w", err)
	}
	c.coverage.matching = matching
	return nil
}

// lists returns the namespaces in which to list a resource, or "" for one list of all.
func (c *cluster) lists(r resource) []string {
	switch {
	case !r.Namespaced:
		return []string{""}
	case c.coverage.selector == nil && len(c.coverage.include) == 0:
		return []string{""} // all namespaces, or all but the excluded ones
	case c.coverage.selector != nil && len(c.selectedNamespaces()) > maxSeparateLists:
		return []string{""}
	}
	return c.selectedNamespaces()
}

func (c *cluster) selectedNamespaces() []string {
	var names []string
	if c.coverage.selector == nil && len(c.coverage.include) > 0 {
		names = slices.Clone(c.coverage.include)
	} else {
		for name := range c.coverage.matching {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !c.coverage.has(name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// whereAllowed returns the namespaces to list separately after a list of all namespaces failed with
// err. It returns false if separate lists can't replace the failed one.
func (c *cluster) whereAllowed(ctx context.Context, r resource, err error) ([]string, bool) {
	if !apierrors.IsForbidden(err) || !r.Namespaced || c.coverage.all() {
		return nil, false
	}
	if c.coverage.selector == nil && c.learnNamespaces(ctx) != nil {
		return nil, false
	}
	return c.selectedNamespaces(), true
}

// covers reports whether an object belongs on the bus if it exists.
func (v *verification) covers(k event.Key) bool {
	if !v.cluster.coverage.has(k.Namespace) || v.refused(k) {
		return false
	}
	set, followed := v.followed[k.GroupResource()]
	return !followed || set.referred[k]
}

// mustDeselect reports whether the bus must have a deselected event for an object that is no longer
// selected, even if the object still exists.
func (v *verification) mustDeselect(k event.Key) bool {
	if v.refused(k) {
		return false
	}
	if v.opts.TellDeselected {
		return true
	}
	_, selected := v.selection.selected[k.GroupResource()]
	_, followed := v.followed[k.GroupResource()]
	return (selected || followed) && v.cluster.coverage.configured(k.Namespace)
}

// refused reports whether RBAC forbids reading an object in its namespace.
func (v *verification) refused(k event.Key) bool {
	_, refused := v.cluster.coverage.refused[namespacedResource{k.GroupResource(), k.Namespace}]
	return refused
}

// canReturn reports whether an object can leave the selection and return to it with the same uid.
func (v *verification) canReturn() bool {
	return v.cluster.selects() || v.cluster.coverage.selector != nil || len(v.opts.Follow) > 0 || v.opts.Shape != nil
}

// resourceOf returns the resource to list, and whether label and field selectors apply to it.
func (v *verification) resourceOf(gr schema.GroupResource) (r resource, filtered, ok bool) {
	if r, ok := v.selection.selected[gr]; ok {
		return r, true, true
	}
	if set, ok := v.followed[gr]; ok {
		return set.resource, false, true
	}
	return resource{}, false, false
}
