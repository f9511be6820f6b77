package informers

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/clientgo/restmapper"
	"github.com/kuberelay/kuberelay/internal/event"
)

// wildcard is the selector, or the first word of one, that means every resource.
const wildcard = "*"

// Selection says which of the cluster's resources to watch. Each selector is what
// kubectl would take: a plural, singular, short name or Kind, with group and
// version where needed («deploy», «deployments.apps», «deployments.v1.apps»,
// «Widget.example.com»), or a whole group («*.apps»), or «*».
type Selection struct {
	Include []string
	Exclude []string

	// Unless named lists resources that a wildcard does not select and that
	// Exclude need not repeat: they are watched only if a selector names them.
	UnlessNamed []string
}

// Resolution is what a selection comes to in a cluster at one moment.
type Resolution struct {
	Watch []event.Resource

	// Unmatched are the selectors that match nothing now; they wait.
	// UnmatchedExclude are those of Exclude.
	Unmatched, UnmatchedExclude []string

	// Left says of each selected resource that is not watched why not.
	Left map[schema.GroupResource]string

	// Decisions say of each resource that a selector of Include or Exclude matches
	// which one decided on it.
	Decisions map[schema.GroupResource]Decision
}

// Decision is what the selectors come to for one resource.
type Decision struct {
	Resource event.Resource // in the version that is watched, or would be

	// Selectors are those of Include that match, in order, and Selector is the one of
	// them that decided; "" if there is none.
	Selectors []string
	Selector  string

	ExcludedBy string // the first selector of Exclude that matches, "" if none does
	Reason     Reason // why it is not watched, "" if it is
}

// Reason is why a resource is not watched, or not everywhere.
type Reason string

// The reasons that lie in the selectors and in what the cluster serves.
const (
	NotSelected  Reason = notSelected
	Excluded     Reason = "excluded"
	NotNamed     Reason = "not_named" // only a wildcard selects it, and that is not enough
	NotWatchable Reason = notWatchable
)

// resolve is a pure function of the selection and the catalogue. Its result is
// ordered by group and resource.
func (s Selection) resolve(c *catalogue) Resolution {
	mapper := newMapper(c)
	res := Resolution{Left: map[schema.GroupResource]string{}, Decisions: map[schema.GroupResource]Decision{}}
	for _, selector := range s.Exclude {
		matched := match(mapper, c, selector)
		if len(matched) == 0 {
			res.UnmatchedExclude = append(res.UnmatchedExclude, selector)
		}
		for _, r := range matched {
			if _, ok := res.Decisions[r.GroupResource()]; !ok {
				res.Decisions[r.GroupResource()] = Decision{Resource: r, ExcludedBy: selector, Reason: NotSelected}
			}
		}
	}
	quiet := map[schema.GroupResource]bool{}
	for _, selector := range s.UnlessNamed {
		for _, r := range match(mapper, c, selector) {
			quiet[r.GroupResource()] = true
		}
	}
	for _, selector := range s.Include {
		matched := match(mapper, c, selector)
		if len(matched) == 0 {
			res.Unmatched = append(res.Unmatched, selector)
		}
		for _, r := range matched {
			gr := r.GroupResource()
			d := res.Decisions[gr]
			d.weigh(r, selector, quiet[gr], c.watchable(r))
			res.Decisions[gr] = d
		}
	}
	for gr, d := range res.Decisions {
		switch d.Reason {
		case "":
			res.Watch = append(res.Watch, d.Resource)
		case NotSelected:
		default:
			res.Left[gr] = d.Reason.sentence()
		}
	}
	slices.SortFunc(res.Watch, func(a, b event.Resource) int {
		return strings.Compare(a.Group+" "+a.Resource, b.Group+" "+b.Resource)
	})
	return res
}

func newMapper(c *catalogue) meta.RESTMapper {
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(c.groups), c, nil)
}

// weigh takes another selector of Include into account, which matches r. The first one
// that has the resource watched wins, so that one which names a version can stand before
// a wildcard.
func (d *Decision) weigh(r event.Resource, selector string, quiet, watchable bool) {
	before, first := d.Reason, len(d.Selectors) == 0
	d.Selectors = append(d.Selectors, selector)
	if before == "" && !first {
		return
	}
	switch {
	case d.ExcludedBy != "":
		d.Reason = Excluded
	case quiet && isWildcard(selector):
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

// sentence is the reason for people, "" for none.
func (r Reason) sentence() string {
	switch r {
	case "":
		return ""
	case Excluded:
		return "excluded"
	case NotNamed:
		return "not selected by a wildcard; name it to watch it"
	case NotWatchable:
		return "the API server does not list and watch it"
	case NotSelected:
		return "not selected"
	}
	return string(r)
}

func isWildcard(selector string) bool {
	first, _, _ := strings.Cut(selector, ".")
	return first == wildcard
}

// match gives the resources that one selector names, in the version that the
// selector or else the group prefers.
func match(mapper meta.RESTMapper, c *catalogue, selector string) []event.Resource {
	if isWildcard(selector) {
		_, group, oneGroup := strings.Cut(selector, ".")
		return c.preferred(func(g string) bool { return !oneGroup || g == group })
	}
	gvr, err := resourceFor(mapper, selector)
	if err != nil {
		return nil // no match today; an ambiguous name cannot come out of a priority mapper
	}
	if r, ok := c.resources[gvr]; ok {
		return []event.Resource{r.Resource}
	}
	return nil
}

// resourceFor does what kubectl does with a resource argument (cli-runtime,
// Builder.mappingFor): a resource first, in the version if one is given, and then
// a Kind.
func resourceFor(mapper meta.RESTMapper, arg string) (schema.GroupVersionResource, error) {
	full, gr := schema.ParseResourceArg(strings.ToLower(arg))
	if full != nil {
		if gvr, err := mapper.ResourceFor(*full); err == nil {
			return gvr, nil
		}
	}
	if gvr, err := mapper.ResourceFor(gr.WithVersion("")); err == nil {
		return gvr, nil
	}
	fullKind, gk := schema.ParseKindArg(arg)
	if fullKind != nil {
		if m, err := mapper.RESTMapping(fullKind.GroupKind(), fullKind.Version); err == nil {
			return m.Resource, nil
		}
	}
	m, err := mapper.RESTMapping(gk)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return m.Resource, nil
}
