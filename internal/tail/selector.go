package tail

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Selector chooses resources.
type Selector struct {
	group   string   // wild, or "" for the core group
	plurals []string // the names that it may have on the bus; none: all of the group, or by kind
	kind    string   // in lower case
}

// versionedGroup is what follows the name in deployments.v1.apps.
var versionedGroup = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?\.(.+)$`)

// ParseSelector reads a selector in the forms of KUBERELAY_RESOURCES: pods,
// deployments.apps, deployments.v1.apps (of all versions, since an event of the bus
// is of an object whatever its version), *.apps, *; and core for the group that has
// no name: events.core.
//
// Without a group it is of any group. The name is a plural, a singular or one of
// the short names that Kubernetes itself has; with a capital in it, a kind.
func ParseSelector(s string) (Selector, error) {
	const forms = "; write it as pods, deployments.apps, Deployment or *.apps"
	name, group, grouped := strings.Cut(s, ".")
	if m := versionedGroup.FindStringSubmatch(group); m != nil {
		group = m[3]
	}
	switch {
	case name != wild && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0:
		return Selector{}, fmt.Errorf("%q is not the name of a resource%s", name, forms)
	case grouped && len(validation.IsDNS1123Subdomain(group)) > 0:
		return Selector{}, fmt.Errorf("%q is not the name of a group%s", group, forms)
	case !grouped:
		group = wild
	case group == "core":
		group = ""
	}
	return newSelector(name, group), nil
}

// ParseNamespace checks the name of a namespace.
func ParseNamespace(s string) (string, error) {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return "", errors.New("not the name of a namespace; use lower-case letters, digits and -, at most 63")
	}
	return s, nil
}

// ParseCluster checks the name of a cluster.
func ParseCluster(s string) (string, error) {
	if !clusterName.MatchString(s) {
		return "", errors.New("not the name of a cluster; use letters, digits, . _ and -, with a letter or digit first")
	}
	return s, nil
}

// clusterName is what KUBERELAY_CLUSTER_NAME takes.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func newSelector(name, group string) Selector {
	lower := strings.ToLower(name)
	switch {
	case name == wild:
		return Selector{group: group}
	case name != lower:
		return Selector{group: group, kind: lower}
	}
	other, ok := shortNames[name]
	if !ok {
		other = plural(name)
	}
	if other == name {
		return Selector{group: group, plurals: []string{name}}
	}
	return Selector{group: group, plurals: []string{name, other}}
}

// plural guesses the plural of a kind or singular, as Kubernetes does where nobody
// has said what it is.
func plural(singular string) string {
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: singular})
	return guess.Resource
}

func (s Selector) match(m *event.Message) bool {
	switch {
	case m.Key.Resource == "", s.group != wild && s.group != m.Key.Group: // the marker of a writer or a cluster is of no resource
		return false
	case s.kind == "":
		return len(s.plurals) == 0 || slices.Contains(s.plurals, m.Key.Resource)
	case m.Marker: // it has no kind
		return m.Key.Resource == plural(s.kind)
	}
	return strings.ToLower(m.Attribute("kind")) == s.kind
}

// shortNames are those that the API server's own resources have, as kubectl
// api-resources shows them.
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
