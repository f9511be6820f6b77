// Package explain explains which resources a forwarder with a given configuration watches in a
// cluster, and why it does not watch the others. Like the informers, it uses package discovery.
// It starts nothing and changes nothing. It escapes terminal control sequences in its output,
// because an aggregated API server chooses the names of its resources and the texts of its errors.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// Config is the part of the forwarder's configuration that selects the watched resources, and the
// clients with which [Explain] reads the cluster.
type Config struct {
	Dynamic   dynamic.Interface
	Discovery kubediscovery.DiscoveryInterface
	Reviews   authorizationclient.SelfSubjectAccessReviewInterface

	Selection     discovery.Selection
	Namespaces    discovery.NamespaceSelection
	LabelSelector string
	FieldSelector string
	Follow        []string
}

// Question selects the resources of an [Explanation]. The zero value selects all resources that a
// selector matches.
type Question struct {
	All  bool     // include resources that no selector matches
	Only []string // selectors of the resources to explain, whether or not the configuration selects them
}

const (
	maxRequests = 8 // maximum number of concurrent requests
	readTimeout = 10 * time.Second
)

// Explain finds out which resources a forwarder with this configuration would watch if it started
// now. An error means that the API server did not respond, or refused the credentials.
func Explain(ctx context.Context, c Config, q Question) (Explanation, error) {
	reviews := &cachedReviews{next: c.Reviews, answers: map[authorizationv1.ResourceAttributes]*authorizationv1.SelfSubjectAccessReview{}}
	e := &explainer{config: c, access: discovery.NewAccess(reviews, nil, time.Now), namespaces: discovery.NewNamespaces(c.Namespaces), listing: len(q.Only) > 0}
	var err error
	if e.catalog, _, err = discovery.Discover(ctx, c.Discovery, nil); err != nil {
		return Explanation{}, fmt.Errorf("discover the resources: %w", err)
	}
	e.resolution = c.Selection.Resolve(e.catalog)
	if len(c.Follow) > 0 {
		e.followable = c.Selection.Followable(e.catalog)
	}
	x := Explanation{
		Unmatched: orEmpty(e.resolution.Unmatched), UnmatchedExclude: orEmpty(e.resolution.UnmatchedExclude),
		Follow: c.Follow, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector,
		Resources: []Explained{}, NotServed: []NotServed{}, FailingGroups: []FailingGroup{}, Warnings: []string{},
	}
	for _, group := range slices.Sorted(maps.Keys(e.catalog.Failed)) {
		x.FailingGroups = append(x.FailingGroups, FailingGroup{group, e.catalog.Failed[group].Error()})
	}
	if err := discovery.Ready(ctx, c.Discovery); err != nil && !apierrors.IsForbidden(err) {
		x.Warnings = append(x.Warnings, "the API server is not ready, so it might not show everything that it serves: "+err.Error())
	}
	x.Suggestions = map[string]string{}
	for _, unmatched := range append(slices.Clone(x.Unmatched), x.UnmatchedExclude...) {
		if similar := e.catalog.Similar(unmatched); similar != "" {
			x.Suggestions[unmatched] = similar
		}
	}
	x.Followable = slices.Collect(maps.Values(e.followable))
	x.Namespaces = e.explainNamespaces(ctx, &x)
	x.Resources, x.NotServed = e.pick(ctx, q)
	if err := e.explainAll(ctx, x.Resources); err != nil {
		return Explanation{}, err
	}
	switch {
	case ctx.Err() != nil:
		return Explanation{}, ctx.Err()
	case reviews.undecided != "":
		x.Warnings = append(x.Warnings, "the API server could not decide every permission: "+reviews.undecided)
	}
	switch lost := reviews.failed; {
	case lost == nil:
	case apierrors.IsForbidden(lost), apierrors.IsNotFound(lost), apierrors.IsMethodNotSupported(lost):
		x.Warnings = append(x.Warnings, "the API server refuses permission checks, so the permissions are unknown: "+lost.Error())
	default:
		return Explanation{}, lost
	}
	return x, nil
}

// explainer is the state of one call of Explain.
type explainer struct {
	config     Config
	access     *discovery.Access
	namespaces *discovery.Namespaces
	catalog    *discovery.Catalog
	resolution discovery.Resolution
	listing    bool // whether to list an object of each resource

	followable map[schema.GroupKind]event.Resource // empty if references are not followed
}

// pick returns the resources to explain.
func (e *explainer) pick(ctx context.Context, q Question) (picked []Explained, unknown []NotServed) {
	wanted := map[schema.GroupResource]event.Resource{}
	for gr, d := range e.resolution.Decisions {
		wanted[gr] = d.Resource
	}
	everything := e.catalog.All()
	if q.All {
		for _, r := range everything {
			wanted[r.GroupResource()] = r
		}
	}
	unknown = []NotServed{}
	if len(q.Only) > 0 {
		clear(wanted)
		for _, asked := range q.Only {
			matched := e.catalog.Match(asked)
			if len(matched) == 0 {
				unknown = append(unknown, NotServed{asked, e.notServed(ctx, asked)})
			}
			for _, r := range matched {
				wanted[r.GroupResource()] = r
			}
		}
	}
	picked = []Explained{}
	for gr, r := range wanted {
		d, ok := e.resolution.Decisions[gr]
		if !ok {
			d = discovery.Decision{Resource: r, Reason: discovery.NotSelected}
		}
		picked = append(picked, e.describe(d))
	}
	slices.SortFunc(picked, func(a, b Explained) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource))
	})
	return picked, unknown
}

// describe explains a resource without further requests.
func (e *explainer) describe(d discovery.Decision) Explained {
	r := d.Resource
	x := Explained{
		Name: r.GroupResource().String(), Group: r.Group, Version: r.Version, Versions: e.catalog.Versions(r.GroupResource()), Kind: r.Kind, Namespaced: r.Namespaced,
		Watched: Nowhere, Reason: d.Reason, Detail: d.Reason.Sentence(),
		Selector: d.Selector, Selectors: orEmpty(d.Selectors), ExcludedBy: d.ExcludedBy, Namespaces: []string{}, Forbidden: []Refusal{}, Resource: r,
	}
	switch d.Reason {
	case discovery.Excluded:
		x.Detail = "excluded by " + d.ExcludedBy
	case discovery.NotSelected:
		if d.ExcludedBy != "" {
			x.Detail = "not selected; also excluded by " + d.ExcludedBy
		} else if f, ok := e.followable[schema.GroupKind{Group: r.Group, Kind: r.Kind}]; ok && f.Resource == r.Resource {
			x.Detail = "only objects that selected objects refer to are watched"
		}
	case discovery.NotWatchable:
		x.Detail += ", only " + strings.Join(e.catalog.Verbs(r), ", ")
	}
	if err, failed := e.catalog.Failed[r.Group]; failed {
		x.GroupError = err.Error()
	}
	return x
}

// explainAll completes the explanations of the selected resources.
func (e *explainer) explainAll(ctx context.Context, all []Explained) error {
	var g errgroup.Group
	g.SetLimit(maxRequests)
	for n := range all {
		if x := &all[n]; x.Reason == "" {
			g.Go(func() error { e.explain(ctx, x); return ctx.Err() })
		}
	}
	return g.Wait()
}

func (e *explainer) explain(ctx context.Context, x *Explained) {
	names, denied := discovery.Scopes(ctx, x.Resource, e.namespaces, e.access, discovery.Coverage{})
	refused := slices.Sorted(maps.Keys(denied))
	wide := slices.Contains(names, "") || slices.Contains(refused, "")
	switch {
	case !x.Namespaced:
		x.Scope = ClusterScope
	case wide:
		x.Scope = AllNamespacesScope
	default:
		x.Scope, x.Namespaces = NamespacesScope, orEmpty(names)
	}
	if err := e.namespaces.Ready(); err != nil && x.Namespaced {
		x.Reason, x.Detail = NamespacesUnknown, "the selected namespaces are unknown, because namespaces cannot be read"
		return
	}
	x.ScopeDetail = e.scopeDetail(x.Resource, wide)
	everywhere := slices.Concat(names, refused)
	if len(everywhere) == 0 {
		x.Reason, x.Detail = NoNamespaces, "no namespace is selected at present"
		return
	}
	slices.Sort(everywhere)
	e.refusals(ctx, x, everywhere)
	x.Detail = describeRefusals(x.Forbidden, x.Namespaced)
	switch {
	case len(denied) == 0:
		x.Watched = Everywhere
	case len(names) == 0:
		x.Reason = NotAllowed
	default:
		x.Watched, x.Reason = Partly, NotAllowed
	}
	if e.listing && len(names) > 0 {
		if err := e.try(ctx, x.Resource, names[0]); err != nil {
			x.Watched, x.Reason, x.Detail, x.ListError = Nowhere, ListFails, "a list fails", err.Error()
		}
	}
}

// refusals adds the missing permissions in each of these namespaces to x.Forbidden.
func (e *explainer) refusals(ctx context.Context, x *Explained, namespaces []string) {
	for _, namespace := range namespaces {
		var verbs []string
		var why string
		for _, verb := range []string{"list", "watch", "get"} {
			if allowed, because := e.allowed(ctx, verb, x.Resource, namespace); !allowed {
				verbs, why = append(verbs, verb), because
			}
		}
		if len(verbs) > 0 {
			x.Forbidden = append(x.Forbidden, Refusal{namespace, verbs, why})
		}
	}
}

// allowed reports whether the user may use the verb. Like the informers, it returns true if the API
// server can't decide.
func (e *explainer) allowed(ctx context.Context, verb string, r event.Resource, namespace string) (allowed bool, why string) {
	if all, _, err := e.access.Review(ctx, verb, "*", "*", ""); all && err == nil {
		return true, ""
	}
	allowed, why, err := e.access.Review(ctx, verb, r.Group, r.Resource, namespace)
	return allowed || err != nil, why
}

// try lists one object. A permitted list can still fail, because the resource does not support a
// field selector, or because a conversion webhook does not respond.
func (e *explainer) try(ctx context.Context, r event.Resource, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := e.config.Dynamic.Resource(r.GroupVersionResource()).Namespace(namespace).List(ctx, metav1.ListOptions{
		Limit: 1, LabelSelector: e.config.LabelSelector, FieldSelector: e.config.FieldSelector,
	})
	return err
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{} // not null in JSON
	}
	return list
}
