// Package selector parses resource selectors, such as those of KUBERELAY_RESOURCES,
// KUBERELAY_DROP_FIELDS, and forwarder tail, and finds the resource that a selector names:
//
//	selector = "*" | "*." group | name | name "." group | name "." version "." [ group ]
//
// A name is a plural, a singular, a short name, or a Kind, as in kubectl. "core" stands for the
// group that has no name. So does an omitted group after a version. The package does not know which
// resources a cluster serves, so a valid selector can name a resource that does not exist.
package selector

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// wildcard is the name that selects every resource.
const wildcard = "*"

// core stands for the group that has no name.
const core = "core"

// Selector is a parsed selector. The zero value selects no resource.
type Selector struct {
	Name    string // the name as written, or "*"
	Version string // "" for any version
	Group   string // "" means the core group if Grouped is true, and any group otherwise
	Grouped bool   // the selector names a group

	text string
}

var versionForm = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// IsVersion reports whether s has the form of a version of the Kubernetes API, such as
// v1 or v2beta1.
func IsVersion(s string) bool { return versionForm.MatchString(s) }

// Parse parses a selector. Most of its errors show the valid forms of a selector.
func Parse(text string) (Selector, error) {
	const forms = "; write it as pods, deployments.apps, deployments.v1.apps, *.apps, or *"
	name, group, grouped := strings.Cut(text, ".")
	version, rest, ok := strings.Cut(group, ".")
	if ok && IsVersion(version) && name != wildcard {
		group = cmp.Or(rest, core)
	} else {
		version = ""
	}
	switch {
	case strings.Contains(text, "/"):
		return Selector{}, errors.New("a subresource or an API path cannot be selected" + forms)
	case strings.ContainsAny(text, " \t\r\n"):
		return Selector{}, errors.New("there is a space in it; put commas between resources")
	case strings.Contains(name, wildcard) && name != wildcard || strings.Contains(group, wildcard):
		return Selector{}, errors.New("* cannot stand for a part of a name" + forms)
	case name == "", grouped && slices.Contains(strings.Split(group, "."), ""):
		return Selector{}, errors.New("a part before, after, or between dots is empty" + forms)
	case name != wildcard && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0:
		return Selector{}, fmt.Errorf("%q is not the name of a resource%s", name, forms)
	case grouped && len(validation.IsDNS1123Subdomain(group)) > 0:
		return Selector{}, fmt.Errorf("%q is not the name of a group%s", group, forms)
	}
	if group == core {
		group = ""
	}
	return Selector{Name: name, Version: version, Group: group, Grouped: grouped, text: text}, nil
}

// String returns the text that was parsed.
func (s Selector) String() string { return s.text }

// IsWildcard reports whether s selects every resource, or every resource of its group.
func (s Selector) IsWildcard() bool { return s.Name == wildcard }

// HasGroup reports whether s can select a resource of the group.
func (s Selector) HasGroup(group string) bool { return !s.Grouped || s.Group == group }

// Resource returns the resource that s names. Like kubectl (cli-runtime, Builder.mappingFor), it
// first tries the name as a resource, with the version if s has one, and then as a Kind. It returns
// false for a wildcard, and if the mapper knows no such resource.
func (s Selector) Resource(mapper meta.RESTMapper) (schema.GroupVersionResource, bool) {
	withVersion, gr := schema.ParseResourceArg(strings.ToLower(s.text))
	if withVersion != nil {
		if gvr, err := mapper.ResourceFor(*withVersion); err == nil {
			return gvr, true
		}
	}
	if gvr, err := mapper.ResourceFor(gr.WithVersion("")); err == nil {
		return gvr, true
	}
	gvk, gk := schema.ParseKindArg(s.text)
	if gvk != nil {
		if m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
			return m.Resource, true
		}
	}
	if m, err := mapper.RESTMapping(gk); err == nil {
		return m.Resource, true
	}
	return schema.GroupVersionResource{}, false
}
