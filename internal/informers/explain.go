package informers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Question says what an [Explanation] is wanted of: of all resources that a selector
// matches, if it is empty.
type Question struct {
	All  bool     // also those that no selector matches
	Only []string // only these, written as selectors are, whether or not one matches them
}

// askers is how many questions are put to the API server at once.
const askers = 8

// Explain asks the API server what a [Set] of this configuration would watch now. Of the
// configuration it needs Dynamic, Discovery and what selects. It decides by the code by
// which a Set does, starts nothing and changes nothing. An error means that the API
// server could not be asked.
func Explain(ctx context.Context, c Config, q Question) (Explanation, error) {
	access := &answered{ask: c.Access, answers: map[authorizationv1.ResourceAttributes]*authorizationv1.SelfSubjectAccessReview{}}
	if c.Access != nil {
		c.Access = access
	}
	c.Now, c.Logger, c.Registerer = time.Now, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	e := &explainer{set: New(c), trying: len(q.Only) > 0}
	var err error
	if e.catalogue, _, err = discoverChange(ctx, c.Discovery, etags{}); err != nil {
		return Explanation{}, fmt.Errorf("ask what it serves: %w", err)
	}
	e.resolution = c.Selection.resolve(e.catalogue)
	if len(c.Follow) > 0 {
		e.followable = c.Selection.followable(e.catalogue)
	}
	x := Explanation{
		Unmatched: orEmpty(e.resolution.Unmatched), UnmatchedExclude: orEmpty(e.resolution.UnmatchedExclude),
		Follow: c.Follow, LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector,
		Resources: []Explained{}, NotServed: []NotServed{}, FailingGroups: []FailingGroup{}, Warnings: []string{},
	}
	for _, group := range sortedKeys(e.catalogue.failed) {
		x.FailingGroups = append(x.FailingGroups, FailingGroup{group, e.catalogue.failed[group].Error()})
	}
	if err := e.set.serverReady(ctx); err != nil && !apierrors.IsForbidden(err) {
		x.Warnings = append(x.Warnings, "the API server says that it is not ready, so it may not show everything that it serves: "+err.Error())
	}
	x.Namespaces = e.namespaces(ctx, &x.Warnings)
	x.Resources, x.NotServed = e.pick(ctx, q)
	if err := e.explainAll(ctx, x.Resources); err != nil {
		return Explanation{}, err
	}
	switch {
	case ctx.Err() != nil:
		return Explanation{}, ctx.Err()
	case c.Access == nil:
		x.Warnings = append(x.Warnings, "it was not asked what may be read")
	case access.doubt != "":
		x.Warnings = append(x.Warnings, "the API server does not know of everything whether it may be read: "+access.doubt)
	}
	switch lost := access.failed; {
	case lost == nil:
	case apierrors.IsForbidden(lost), apierrors.IsNotFound(lost), apierrors.IsMethodNotSupported(lost):
		x.Warnings = append(x.Warnings, "the API server does not say what may be read, so it is not known: "+lost.Error())
	default:
		return Explanation{}, lost
	}
	return x, nil
}

// explainer is one Explain.
type explainer struct {
	set        *Set // never run
	catalogue  *catalogue
	resolution Resolution
	trying     bool // to list, too

	followable map[schema.GroupKind]event.Resource // empty where references are not followed
}

// pick says of which resources is to be told.
func (e *explainer) pick(ctx context.Context, q Question) (picked []Explained, unknown []NotServed) {
	wanted := map[schema.GroupResource]event.Resource{}
	for gr, d := range e.resolution.Decisions {
		wanted[gr] = d.Resource
	}
	everything := e.catalogue.preferred(func(string) bool { return true })
	if q.All {
		for _, r := range everything {
			wanted[r.GroupResource()] = r
		}
	}
	unknown = []NotServed{}
	if len(q.Only) > 0 {
		clear(wanted)
		mapper := newMapper(e.catalogue)
		for _, asked := range q.Only {
			matched := match(mapper, e.catalogue, asked)
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
			d = Decision{Resource: r, Reason: NotSelected}
		}
		picked = append(picked, e.describe(d))
	}
	slices.SortFunc(picked, func(a, b Explained) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.resource.Resource, b.resource.Resource))
	})
	return picked, unknown
}

// describe says what is known without asking further.
func (e *explainer) describe(d Decision) Explained {
	r := d.Resource
	x := Explained{
		Name: r.GroupResource().String(), Group: r.Group, Version: r.Version, Versions: e.catalogue.versionsOf(r.GroupResource()), Kind: r.Kind, Namespaced: r.Namespaced,
		Watched: Nowhere, Reason: d.Reason, Detail: d.Reason.sentence(),
		Selector: d.Selector, Selectors: orEmpty(d.Selectors), ExcludedBy: d.ExcludedBy, Namespaces: []string{}, Forbidden: []Refusal{}, resource: r,
	}
	switch d.Reason {
	case Excluded:
		x.Detail = "excluded by " + d.ExcludedBy
	case NotSelected:
		if d.ExcludedBy != "" {
			x.Detail = "not selected; excluded as well, by " + d.ExcludedBy
		} else if f, ok := e.followable[schema.GroupKind{Group: r.Group, Kind: r.Kind}]; ok && f.Resource == r.Resource {
			x.Detail = "not selected, but for objects that selected ones refer to"
		}
	case NotWatchable:
		x.Detail += ", only " + strings.Join(e.catalogue.resources[r.GroupVersionResource()].verbs, ", ")
	}
	if err, failed := e.catalogue.failed[r.Group]; failed {
		x.GroupError = err.Error()
	}
	return x
}

// explainAll asks about those that are selected.
func (e *explainer) explainAll(ctx context.Context, all []Explained) error {
	var g errgroup.Group
	g.SetLimit(askers)
	for n := range all {
		if x := &all[n]; x.Reason == "" {
			g.Go(func() error { e.explain(ctx, x); return ctx.Err() })
		}
	}
	return g.Wait()
}

func (e *explainer) explain(ctx context.Context, x *Explained) {
	names, denied := e.set.scopes(ctx, &watched{resource: x.resource})
	refused := sortedKeys(denied)
	wide := slices.Contains(names, "") || slices.Contains(refused, "")
	switch {
	case !x.Namespaced:
		x.Scope = ClusterScope
	case wide:
		x.Scope = AllNamespacesScope
	default:
		x.Scope, x.Namespaces = NamespacesScope, orEmpty(names)
	}
	if err := e.set.namespaces.ready(); err != nil && x.Namespaced {
		x.Reason, x.Detail = NamespacesUnknown, "it is not known which namespaces are selected: they cannot be read"
		return
	}
	x.ScopeDetail = e.scopeDetail(x.resource, wide)
	switch everywhere := slices.Concat(names, refused); {
	case len(everywhere) == 0:
		x.Reason, x.Detail = NoNamespaces, "no namespace is selected at present"
		return
	default:
		slices.Sort(everywhere)
		e.refusals(ctx, x, everywhere)
	}
	x.Detail = describeRefusals(x.Forbidden, x.Namespaced)
	switch {
	case len(denied) == 0:
		x.Watched = Everywhere
	case len(names) == 0:
		x.Reason = NotAllowed
	default:
		x.Watched, x.Reason = Partly, NotAllowed
	}
	if e.trying && len(names) > 0 {
		if err := e.try(ctx, x.resource, names[0]); err != nil {
			x.Watched, x.Reason, x.Detail, x.ListError = Nowhere, ListFails, "a list of it fails", err.Error()
		}
	}
}

// refusals asks what may not be done in each of these namespaces.
func (e *explainer) refusals(ctx context.Context, x *Explained, namespaces []string) {
	for _, namespace := range namespaces {
		var verbs []string
		var why string
		for _, verb := range []string{"list", "watch", "get"} {
			if allowed, because := e.allowed(ctx, verb, x.resource, namespace); !allowed {
				verbs, why = append(verbs, verb), because
			}
		}
		if len(verbs) > 0 {
			x.Forbidden = append(x.Forbidden, Refusal{namespace, verbs, why})
		}
	}
}

// allowed is true where it cannot be told, as for a Set.
func (e *explainer) allowed(ctx context.Context, verb string, r event.Resource, namespace string) (allowed bool, why string) {
	if e.set.config.Access == nil {
		return true, ""
	}
	if all, _, err := e.set.review(ctx, verb, "*", "*", ""); all && err == nil {
		return true, ""
	}
	allowed, why, err := e.set.review(ctx, verb, r.Group, r.Resource, namespace)
	return allowed || err != nil, why
}

// try lists one object, as what is allowed may fail all the same: by a field selector
// that the resource does not support, or by a conversion that does not answer.
func (e *explainer) try(ctx context.Context, r event.Resource, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := e.set.config.Dynamic.Resource(r.GroupVersionResource()).Namespace(namespace).List(ctx, metav1.ListOptions{
		Limit: 1, LabelSelector: e.set.config.LabelSelector, FieldSelector: e.set.config.FieldSelector,
	})
	return err
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{} // not null in JSON
	}
	return list
}
