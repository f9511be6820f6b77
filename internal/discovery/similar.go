package discovery

import (
	"maps"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/selector"
)

// Similar returns the resource whose name is most similar to a selector that matches nothing, or ""
// if none is similar.
func (c *Catalog) Similar(unmatched string) string {
	unmatched = strings.ToLower(unmatched)
	resources := map[string]string{} // by each form of their names
	for gvr, d := range c.resources {
		name := gvr.GroupResource().String()
		for _, form := range []string{gvr.Resource, d.Kind, name, d.Kind + "." + gvr.Group} {
			form = strings.ToLower(form)
			if was, ok := resources[form]; !ok || name < was {
				resources[form] = name
			}
		}
	}
	return resources[selector.Similar(unmatched, slices.Collect(maps.Keys(resources)))]
}
