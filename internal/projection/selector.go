package projection

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuberelay/kuberelay/internal/event"
)

const wildcard = "*"

// selector is the resource of an entry.
type selector struct {
	name  string // wildcard for all
	group string // "" for the core group
	any   bool   // of any group
}

// versioned is what follows the name in deployments.v1.apps.
var versioned = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?(\.|$)`)

func parseSelector(text string) (selector, error) {
	const forms = "; write it as nodes, Node, deployments.apps, *.apps or *"
	name, group, grouped := strings.Cut(text, ".")
	switch {
	case text == "":
		return selector{}, errors.New("there is no resource before the colon" + forms)
	case slices.Contains(strings.Split(text, "."), ""):
		return selector{}, errors.New("there is nothing before, after or between dots of the resource" + forms)
	case name != wildcard && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0:
		return selector{}, fmt.Errorf("%q is not the name of a resource%s", name, forms)
	case versioned.MatchString(group):
		return selector{}, fmt.Errorf("fields are dropped in every version of a resource; leave %q out", versioned.FindString(group))
	case grouped && len(validation.IsDNS1123Subdomain(group)) > 0:
		return selector{}, fmt.Errorf("%q is not the name of a group%s", group, forms)
	case group == "core":
		group = ""
	}
	return selector{name: name, group: group, any: !grouped}, nil
}

func (s selector) matches(r event.Resource) bool {
	return (s.any || s.group == r.Group) &&
		(s.name == wildcard || strings.EqualFold(s.name, r.Resource) || strings.EqualFold(s.name, r.Kind))
}
