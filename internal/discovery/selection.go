package discovery

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// Selection selects resources of the cluster. Package selector describes the syntax of selectors. An
// invalid selector matches nothing.
type Selection struct {
	Include []string
	Exclude []string

	// UnlessNamed contains selectors of resources that a wildcard does not select. These resources
	// are watched only if a selector in Include names them.
	UnlessNamed []string
}

// Resolution is a [Selection] applied to a [Catalog].
type Resolution struct {
	Watch []event.Resource

	// Unmatched contains the selectors in Include that currently match nothing. UnmatchedExclude
	// contains those in Exclude. These selectors might match later.
	Unmatched, UnmatchedExclude []string

	// Left contains each selected resource that is not watched, with the reason in words.
	Left map[schema.GroupResource]string

	// Decisions contains each resource that a selector in Include or Exclude matches.
	Decisions map[schema.GroupResource]Decision
}

// Decision is the outcome of a [Selection] for one resource.
type Decision struct {
	Resource event.Resource // in the version that a watch uses

	// Selectors contains the matching selectors in Include, in order. Selector is the one that
	// decided, or "" if none matches.
	Selectors []string
	Selector  string

	ExcludedBy string // the first matching selector in Exclude, "" if none matches
	Reason     Reason // why the resource is not watched, "" if it is watched
}

// Reason is the reason why a resource is not watched, or only in some namespaces.
type Reason string

// The reasons that follow from the selectors and the catalog.
const (
	NotSelected  Reason = "not_selected"
	Excluded     Reason = "excluded"
	NotNamed     Reason = "not_named" // only a wildcard selects the resource, and UnlessNamed contains the resource
	NotWatchable Reason = "not_watchable"
)

// Resolve applies the selection to a catalog. Watch is ordered by group and resource.
func (s Selection) Resolve(c *Catalog) Resolution {
	m := newMatcher(c)
	res := Resolution{Left: map[schema.GroupResource]string{}, Decisions: map[schema.GroupResource]Decision{}}
	for _, selector := range s.Exclude {
		matched := m.match(selector)
		if len(matched) == 0 {
			res.UnmatchedExclude = append(res.UnmatchedExclude, selector)
		}
		for _, r := range matched {
			if _, ok := res.Decisions[r.GroupResource()]; !ok {
				res.Decisions[r.GroupResource()] = Decision{Resource: r, ExcludedBy: selector, Reason: NotSelected}
			}
		}
	}
	unlessNamed := map[schema.GroupResource]bool{}
	for _, selector := range s.UnlessNamed {
		for _, r := range m.match(selector) {
			unlessNamed[r.GroupResource()] = true
		}
	}
	for _, selector := range s.Include {
		matched := m.match(selector)
		if len(matched) == 0 {
			res.Unmatched = append(res.Unmatched, selector)
		}
		for _, r := range matched {
			gr := r.GroupResource()
			d := res.Decisions[gr]
			d.weigh(r, selector, unlessNamed[gr], c.IsWatchable(r))
			res.Decisions[gr] = d
		}
	}
	for gr, d := range res.Decisions {
		switch d.Reason {
		case "":
			res.Watch = append(res.Watch, d.Resource)
		case NotSelected:
		default:
			res.Left[gr] = d.Reason.Sentence()
		}
	}
	slices.SortFunc(res.Watch, func(a, b event.Resource) int {
		return strings.Compare(a.Group+" "+a.Resource, b.Group+" "+b.Resource)
	})
	return res
}

// Followable returns the resources that references can additionally select: the watchable resources
// that neither Exclude nor UnlessNamed matches.
func (s Selection) Followable(c *Catalog) map[schema.GroupKind]event.Resource {
	m := newMatcher(c)
	never := map[schema.GroupResource]bool{}
	for _, selector := range slices.Concat(s.Exclude, s.UnlessNamed) {
		for _, r := range m.match(selector) {
			never[r.GroupResource()] = true
		}
	}
	known := map[schema.GroupKind]event.Resource{}
	for _, r := range c.All() {
		if c.IsWatchable(r) && !never[r.GroupResource()] {
			known[schema.GroupKind{Group: r.Group, Kind: r.Kind}] = r
		}
	}
	return known
}

// weigh adds a selector in Include that matches r. The first selector for which the resource is
// watched decides, so a selector with a version can take precedence over a later wildcard.
func (d *Decision) weigh(r event.Resource, selector string, unlessNamed, watchable bool) {
	before, first := d.Reason, len(d.Selectors) == 0
	d.Selectors = append(d.Selectors, selector)
	if before == "" && !first {
		return
	}
	switch {
	case d.ExcludedBy != "":
		d.Reason = Excluded
	case unlessNamed && isWildcard(selector):
		d.Reason = NotNamed
	case !watchable:
		d.Reason = NotWatchable
	default:
		d.Reason = ""
	}
	if first || d.Reason != before {
		d.Resource, d.Selector = r, selector
	}
}

// Sentence returns the reason in words, or "" for no reason.
func (r Reason) Sentence() string {
	switch r {
	case NotNamed:
		return "not selected by a wildcard; name it to watch it"
	case NotWatchable:
		return "the API server does not support list and watch"
	case NotSelected:
		return "not selected"
	}
	return string(r)
}

func isWildcard(text string) bool {
	s, err := selector.Parse(text)
	return err == nil && s.IsWildcard()
}

// matcher matches selectors against a catalog.
type matcher struct {
	catalog *Catalog
	mapper  meta.RESTMapper
}

func newMatcher(c *Catalog) matcher {
	return matcher{c, restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(c.groups), c, nil)}
}

// Match returns the resources that a selector names. It returns none after Compact.
func (c *Catalog) Match(selector string) []event.Resource { return newMatcher(c).match(selector) }

// match returns the resources that a selector names. They have the version of the selector or, if it
// names none, the preferred version of the group.
func (m matcher) match(text string) []event.Resource {
	c := m.catalog
	s, err := selector.Parse(text)
	if err != nil {
		return nil
	}
	if s.IsWildcard() {
		return c.preferred(s.HasGroup)
	}
	if kept := c.keptBy(text); len(kept) > 0 {
		return kept
	}
	gvr, ok := s.Resource(m.mapper)
	if !ok {
		return nil // no match now; a priority mapper returns no error for an ambiguous name
	}
	if r, ok := c.resources[gvr]; ok {
		return []event.Resource{r.Resource}
	}
	return nil
}
