// Package projection removes fields from objects: those that KUBERELAY_DROP_FIELDS names,
// each as a resource and a path.
//
//	nodes:.status.conditions[*].lastHeartbeatTime
//	*:.metadata.annotations["example.com/checksum"]
//	deployments.apps:.status
//
// A path is JSONPath as kubectl writes it, without the braces:
//
//	.name           a field; a backslash escapes a character of its name, such as a dot
//	["name"]        the same, with any characters in the name; 'name' as well
//	[*]             all elements of a list, or all fields of an object; .* as well
//	[?(@.a=="b")]   the elements of a list of which a field has this value
//
// The value in the last form is a string, a number, true or false, and @.a may go on to
// fields of fields. Nothing else of JSONPath is taken, so that this can be promised: what
// is left of an object does not depend on the order of the paths, and to drop from it
// again changes nothing. Therefore there are no positions such as [0]: they change with
// what is dropped.
//
// A resource is a plural, a singular or a Kind, with its group if need be, a whole group
// or everything: nodes, node, Node, deployments.apps, *.apps, *. Without a group it is of
// any group; core is the group that has no name. Short names such as po, and singulars
// that are not the Kind in lower case, are known to a cluster only, and not here.
//
// An object or a list that a drop leaves empty is dropped as well, unless it is an element
// of a list. So an object whose only annotation is dropped is the same as one without
// annotations. What was empty before stays.
//
// What identifies an object cannot be dropped: apiVersion, kind, and in metadata name,
// namespace, uid and resourceVersion.
package projection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Projections says which fields of which resources are dropped. The zero value drops
// nothing. It may be used by several goroutines.
type Projections struct {
	entries []entry
}

type entry struct {
	text     string
	resource selector
	path     []step
}

// Parse reads entries of KUBERELAY_DROP_FIELDS. Its error joins what is wrong with each,
// a line each, with what to write instead.
func Parse(list []string) (Projections, error) {
	var p Projections
	var errs []error
	for _, text := range list {
		e, err := parseEntry(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("KUBERELAY_DROP_FIELDS: %q: %w", text, err))
			continue
		}
		p.entries = append(p.entries, e)
	}
	if err := errors.Join(errs...); err != nil {
		return Projections{}, err
	}
	return p, nil
}

func parseEntry(text string) (entry, error) {
	resource, path, ok := strings.Cut(text, ":")
	if !ok {
		return entry{}, errors.New("there is no resource or no path; write both with a colon between them, as nodes:.status, or *:.status for all resources")
	}
	s, err := parseSelector(resource)
	if err != nil {
		return entry{}, err
	}
	steps, err := parsePath(path)
	if err != nil {
		return entry{}, err
	}
	if err := checkIdentity(steps); err != nil {
		return entry{}, err
	}
	return entry{text: text, resource: s, path: steps}, nil
}

// For gives the function that drops fields from objects of r, which it changes, and tells
// whether there were any; or nil if none are to be dropped. The objects are maps, slices, strings, [json.Number], bool and
// nil; where one is not of the form that a path expects, nothing is dropped by it.
func (p Projections) For(r event.Resource) func(object map[string]any) (dropped bool) {
	var root node
	for _, e := range p.entries {
		if e.resource.matches(r) {
			root.add(e.path)
		}
	}
	if root.leaf() {
		return nil
	}
	return func(object map[string]any) bool { return dropMembers([]*node{&root}, object) }
}

// Unmatched gives the entries that are of none of these resources: they drop nothing,
// which may be a mistake.
func (p Projections) Unmatched(resources []event.Resource) []string {
	var unmatched []string
	for _, e := range p.entries {
		if !slices.ContainsFunc(resources, e.resource.matches) {
			unmatched = append(unmatched, e.text)
		}
	}
	return unmatched
}
