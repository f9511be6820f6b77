package tail

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// Selector selects resources.
type Selector struct {
	resource selector.Selector
	groups   []string // groups that the resource can have; empty selects all
	plurals  []string // names that the resource can have on the bus; empty selects by kind, or the whole group
	kind     string   // the kind in lower case
}

// ParseSelector parses a selector. It ignores the version in the selector, because an event on the
// bus can have an object in any version. The first label of a group can look like a version, so
// "widgets.v1.example.com" selects widgets in the groups example.com and v1.example.com. The group
// "core" is the group without a name. A selector without a group selects resources of all groups.
//
// The name can be a plural, a singular, or the short name of a built-in resource. A name with a
// capital letter is a Kind.
func ParseSelector(text string) (Selector, error) {
	r, err := selector.Parse(text)
	if err != nil {
		return Selector{}, err
	}
	s := newSelector(r)
	if r.Grouped {
		s.groups = []string{r.Group}
	}
	if r.Version != "" && r.Group != "" {
		s.groups = append(s.groups, r.Version+"."+r.Group)
	}
	return s, nil
}

// ParseNamespace returns s, or an error if no namespace can have this name.
func ParseNamespace(s string) (string, error) {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return "", errors.New("not a valid namespace name; use at most 63 lowercase letters, digits, and hyphens, and begin and end with a letter or digit")
	}
	return s, nil
}

// ParseCluster returns s, or an error if no cluster can have this name.
func ParseCluster(s string) (string, error) {
	if !clusterName.MatchString(s) {
		return "", errors.New("not the name of a cluster; use letters, digits, . _ and -, with a letter or digit first")
	}
	return s, nil
}

// clusterName matches the values that KUBERELAY_CLUSTER_NAME can have, and longer ones.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func newSelector(r selector.Selector) Selector {
	lower := strings.ToLower(r.Name)
	switch {
	case r.IsWildcard():
		return Selector{resource: r}
	case r.Name != lower:
		return Selector{resource: r, kind: lower}
	}
	other, ok := shortNames[lower]
	if !ok {
		other = plural(lower)
	}
	if other == lower {
		return Selector{resource: r, plurals: []string{lower}}
	}
	return Selector{resource: r, plurals: []string{lower, other}}
}

// plural guesses the plural of a kind or singular, as Kubernetes does without discovery.
func plural(singular string) string {
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: singular})
	return guess.Resource
}

// IsWildcard reports whether the selector selects a whole group, or everything.
func (s Selector) IsWildcard() bool { return s.resource.IsWildcard() }

// GroupResource returns the resource that the selector most likely means, without discovery.
func (s Selector) GroupResource() schema.GroupResource {
	gr := schema.GroupResource{Group: s.resource.Group, Resource: plural(s.kind)}
	if n := len(s.plurals); n > 0 {
		gr.Resource = s.plurals[n-1]
		isKnown := slices.Contains(slices.Collect(maps.Values(shortNames)), gr.Resource)
		if strings.HasSuffix(s.plurals[0], "s") && !isKnown && shortNames[s.plurals[0]] == "" { // the name is already a plural
			gr.Resource = s.plurals[0]
		}
	}
	return gr
}

func (s Selector) match(m *event.Message) bool {
	switch {
	case m.Key.Resource == "", len(s.groups) > 0 && !slices.Contains(s.groups, m.Key.Group): // the marker of a writer or a cluster has no resource
		return false
	case s.kind == "":
		return len(s.plurals) == 0 || slices.Contains(s.plurals, m.Key.Resource)
	case m.Attribute("kind") == "": // a marker, or a message that is not an event
		return m.Key.Resource == plural(s.kind)
	}
	return strings.ToLower(m.Attribute("kind")) == s.kind
}

// shortNames are the short names of the built-in resources, as kubectl api-resources shows them.
var shortNames = map[string]string{
	"cj":     "cronjobs",
	"cm":     "configmaps",
	"crd":    "customresourcedefinitions",
	"crds":   "customresourcedefinitions",
	"csr":    "certificatesigningrequests",
	"deploy": "deployments",
	"ds":     "daemonsets",
	"ep":     "endpoints",
	"ev":     "events",
	"hpa":    "horizontalpodautoscalers",
	"ing":    "ingresses",
	"ip":     "ipaddresses",
	"limits": "limitranges",
	"netpol": "networkpolicies",
	"no":     "nodes",
	"ns":     "namespaces",
	"pc":     "priorityclasses",
	"pdb":    "poddisruptionbudgets",
	"po":     "pods",
	"pv":     "persistentvolumes",
	"pvc":    "persistentvolumeclaims",
	"quota":  "resourcequotas",
	"rc":     "replicationcontrollers",
	"rs":     "replicasets",
	"sa":     "serviceaccounts",
	"sc":     "storageclasses",
	"sts":    "statefulsets",
	"svc":    "services",
	"vac":    "volumeattributesclasses",
}
