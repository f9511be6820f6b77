package informers

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

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
	Unmatched []string

	// Left says of each selected resource that is not watched why not.
	Left map[schema.GroupResource]string
}

// resolve is a pure function of the selection and the catalogue. Its result is
// ordered by group and resource.
func (s Selection) resolve(c *catalogue) Resolution {
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(c.groups), c, nil)
	excluded := map[schema.GroupResource]bool{}
	for _, selector := range s.Exclude {
		for _, r := range match(mapper, c, selector) {
			excluded[r.GroupResource()] = true
		}
	}
	quiet := map[schema.GroupResource]bool{}
	for _, selector := range s.UnlessNamed {
		for _, r := range match(mapper, c, selector) {
			quiet[r.GroupResource()] = true
		}
	}
	res := Resolution{Left: map[schema.GroupResource]string{}}
	chosen := map[schema.GroupResource]event.Resource{}
	for _, selector := range s.Include {
		matched := match(mapper, c, selector)
		if len(matched) == 0 {
			res.Unmatched = append(res.Unmatched, selector)
		}
		named := !isWildcard(selector)
		for _, r := range matched {
			gr := r.GroupResource()
			switch {
			case excluded[gr]:
				res.Left[gr] = "excluded"
			case quiet[gr] && !named:
				res.Left[gr] = "not selected by a wildcard; name it to watch it"
			case !c.watchable(r):
				res.Left[gr] = "the API server does not list and watch it"
			default:
				// The first selector wins, so that one which names a version can
				// stand before a wildcard.
				if _, ok := chosen[gr]; !ok {
					chosen[gr] = r
				}
			}
		}
	}
	for gr, r := range chosen {
		delete(res.Left, gr)
		res.Watch = append(res.Watch, r)
	}
	slices.SortFunc(res.Watch, func(a, b event.Resource) int {
		return strings.Compare(a.Group+" "+a.Resource, b.Group+" "+b.Resource)
	})
	return res
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
