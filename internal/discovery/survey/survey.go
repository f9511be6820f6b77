// Package survey repeats discovery while resources are watched. After each answer, it decides which
// resources to watch: those that the selection and references pick, and those that stay watched
// although the answer does not show them.
//
// An incomplete answer never ends a watch: a resource stays watched until it is no longer selected
// or is proven to be gone. The package only decides. Its caller starts and stops the informers.
package survey

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// Survey asks a cluster what it serves. All fields are required.
type Survey struct {
	Discovery kubediscovery.DiscoveryInterface
	Reads     dynamic.Interface // reads single objects
	Selection discovery.Selection
	Follows   bool // whether references are followed

	// Refused reports whether the API server no longer serves a watched resource in its watched
	// version.
	Refused func(schema.GroupResource) bool
	// Missing is called with each watched resource that stays although discovery does not show it,
	// and the reason.
	Missing func(gr schema.GroupResource, why error)
}

// Answer is the result of a discovery and of the selection that was applied to it.
type Answer struct {
	Catalog    *discovery.Catalog
	Resolution discovery.Resolution
	Followable map[schema.GroupKind]event.Resource // nil if references are not followed
	similar    map[string]string                   // by unmatched selector
}

// Ask runs discovery. before is the last answer, or nil if there is none. watched contains the
// watched resources, each in its watched version. Ask returns before if nothing has changed.
//
// If references are followed, the first answer must be complete: a missing resource deselects the
// objects that only its objects refer to. An API server that is starting might not serve custom resources
// yet. Ask therefore returns an error until the API server is ready.
func (s Survey) Ask(ctx context.Context, before *Answer, watched map[schema.GroupResource]Plan) (*Answer, error) {
	var known *discovery.Catalog
	if before != nil {
		known = before.Catalog
	} else if s.Follows {
		if err := discovery.Ready(ctx, s.Discovery); apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) {
			return nil, fmt.Errorf("the API server is not ready: %w", err)
		}
	}
	c, unchanged, err := discovery.Discover(ctx, s.Discovery, known)
	if unchanged && !sameKept(s.keep(ctx, known, before, watched), known.Kept) {
		// Since the last answer, a missing resource was proven to be gone, or its watch was refused.
		c, unchanged, err = discovery.Discover(ctx, s.Discovery, nil)
	}
	if err != nil {
		return nil, err
	}
	if unchanged {
		return before, nil
	}
	c.Kept = s.keep(ctx, c, before, watched)
	a := &Answer{Catalog: c, Resolution: s.Selection.Resolve(c), similar: map[string]string{}}
	for _, selector := range slices.Concat(a.Resolution.Unmatched, a.Resolution.UnmatchedExclude) {
		a.similar[selector] = c.Similar(selector)
	}
	if s.Follows {
		a.Followable = s.Selection.Followable(c)
	}
	c.Compact()
	return a, nil
}

// keep returns the watched resources that stay unchanged although discovery shows them differently or
// not at all, and the excluded resources of groups that failed. API servers of several versions might share
// one address, and each of them describes only itself. So keep follows these rules:
//
//   - A resource that discovery does not show stays until it is proven to be gone.
//   - A resource that discovery shows only in other versions stays in its version until a watch is
//     refused.
//   - A built-in resource stays in its version even if another version is preferred now.
//   - A resource of a group that failed stays.
func (s Survey) keep(ctx context.Context, c *discovery.Catalog, before *Answer, watched map[schema.GroupResource]Plan) map[schema.GroupResource]discovery.Decision {
	kept := map[schema.GroupResource]discovery.Decision{}
	if before == nil {
		return kept
	}
	proof := discovery.NewProof(ctx, s.Discovery, s.Reads)
	for gr, p := range watched {
		r := p.Resource
		shown, inVersion := c.Resource(r.GroupVersionResource())
		var why error
		switch {
		case c.Failed[gr.Group] != nil:
		case inVersion && (!discovery.IsBuiltIn(gr.Group) || shown != r || !c.IsWatchable(r)):
			continue
		case inVersion:
		case c.Shows(gr):
			if s.Refused(gr) {
				continue
			}
		default:
			if why = proof.Gone(ctx, gr); why == nil {
				continue
			}
		}
		d := before.Resolution.Decisions[gr]
		d.Resource = r // not set yet for a resource that is watched only because of references
		kept[gr] = d
		if why != nil {
			s.Missing(gr, why)
		}
	}
	for gr, d := range before.Resolution.Decisions {
		if d.ExcludedBy != "" && c.Failed[gr.Group] != nil {
			kept[gr] = d
		}
	}
	return kept
}

// sameKept reports whether the same resources are kept in the same versions.
func sameKept(a, b map[schema.GroupResource]discovery.Decision) bool {
	return maps.EqualFunc(a, b, func(a, b discovery.Decision) bool { return a.Resource == b.Resource })
}

// Similar maps each unmatched selector to a similar name that exists, or to "" if there is none.
func (a *Answer) Similar(selectors []string) map[string]string {
	all := map[string]string{}
	for _, selector := range selectors {
		all[selector] = a.similar[selector]
	}
	return all
}

// Plan is a resource to watch.
type Plan struct {
	Resource event.Resource
	Followed bool // watched only because objects of other resources refer to it
}

// Changes compares the resources to watch with the watched ones. referenced contains the resources
// to watch because of references. gone contains the watched resources that are no longer selected.
// stale contains the watched resources that must restart, because their [Plan] has changed. start
// contains the resources to start, including the stale ones.
func (a *Answer) Changes(referenced []event.Resource, watched map[schema.GroupResource]Plan) (gone, stale []schema.GroupResource, start []Plan) {
	wanted := map[schema.GroupResource]Plan{}
	var order []schema.GroupResource
	add := func(p Plan) {
		gr := p.Resource.GroupResource()
		if _, ok := wanted[gr]; !ok {
			wanted[gr] = p
			order = append(order, gr)
		}
	}
	for _, r := range a.Resolution.Watch {
		add(Plan{r, false})
	}
	for _, r := range referenced {
		add(Plan{r, true})
	}
	for gr, is := range watched {
		p, ok := wanted[gr]
		_, failed := a.Catalog.Failed[gr.Group]
		switch {
		case failed:
			delete(wanted, gr) // the group failed, so its informers stay unchanged
		case !ok:
			gone = append(gone, gr)
		case p != is:
			stale = append(stale, gr) // the version, kind, scope, or selection by reference has changed
		default:
			delete(wanted, gr)
		}
	}
	for _, gr := range order {
		if p, ok := wanted[gr]; ok {
			start = append(start, p)
		}
	}
	return gone, stale, start
}
