// Package projection drops fields from objects and hashes fields of objects. KUBERELAY_DROP_FIELDS
// and KUBERELAY_HASH_FIELDS name these fields, each as a resource and a path.
//
//	nodes:.status.conditions[*].lastHeartbeatTime
//	*:.metadata.annotations["example.com/checksum"]
//	deployments.apps:.status
//
// A path is JSONPath as in kubectl, without braces:
//
//	.name           a field; a backslash escapes a character of the name, such as a dot
//	["name"]        the same, for a name with any characters; also ['name']
//	[*]             all elements of a list, or all fields of an object; also .*
//	[?(@.a=="b")]   the elements of a list with this value in this field
//
// The value in a filter is a string, a number, true, or false, and @.a can be a nested field such
// as @.a.b. No other JSONPath is supported. This restriction makes two promises possible: the
// result does not depend on the order of the paths, and dropping twice is the same as dropping
// once. Positions such as [0] would break both promises, because they change when elements are
// dropped.
//
// A resource is a plural, a singular, or a Kind (with its group if necessary), a whole group, or
// everything: nodes, node, Node, deployments.apps, *.apps, *. Without a group, it matches any
// group. The name of the core group is core. Short names such as po, and singulars that differ from
// the lower-case Kind, are not supported, because only the cluster knows them.
//
// An object or a list that becomes empty is dropped as well, unless it is an element of a list. So
// an object whose only annotation is dropped equals an object without annotations. A value that was
// empty before stays.
//
// A hash replaces the whole value, even if the value is an object or a list. If a field below it is
// dropped, the hash does not include that field. All paths see the object before any drop or hash.
//
// The fields that identify an object can be neither dropped nor hashed: apiVersion and kind, and,
// in metadata, name, namespace, uid, and resourceVersion.
package projection

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
	"github.com/kuberelay/kuberelay/internal/selector"
)

// Projections holds the fields to drop and to hash, by resource. The zero value has none.
// Several goroutines can use it.
type Projections struct {
	entries []entry
}

type entry struct {
	text     string
	resource selector.Selector
	path     []step
	hash     bool // hash the field instead of dropping it
}

// ParseDrop parses the entries of KUBERELAY_DROP_FIELDS. Its error has a line for each
// invalid entry, with the correction.
func ParseDrop(list []string) (Projections, error) {
	return parse("KUBERELAY_DROP_FIELDS", list, false)
}

// ParseHash parses the entries of KUBERELAY_HASH_FIELDS, as ParseDrop does.
func ParseHash(list []string) (Projections, error) {
	return parse("KUBERELAY_HASH_FIELDS", list, true)
}

func parse(variable string, list []string, hash bool) (Projections, error) {
	var p Projections
	var errs []error
	for _, text := range list {
		e, err := parseEntry(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", variable, text, err))
			continue
		}
		e.hash = hash
		p.entries = append(p.entries, e)
	}
	if err := errors.Join(errs...); err != nil {
		return Projections{}, err
	}
	return p, nil
}

// And returns the fields of p and q.
func (p Projections) And(q Projections) Projections {
	return Projections{slices.Concat(p.entries, q.entries)}
}

// None reports whether p has no fields.
func (p Projections) None() bool { return len(p.entries) == 0 }

func parseEntry(text string) (entry, error) {
	resource, path, ok := strings.Cut(text, ":")
	if !ok {
		return entry{}, errors.New("a resource or a path is missing; write both with a colon between them, as in nodes:.status, or *:.status for all resources")
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

// For returns the shape that drops and hashes fields of objects of r in place. A path that
// does not fit an object has no effect.
func (p Projections) For(r event.Resource) decode.Shape {
	var root node
	var s decode.Shape
	var names []string
	for _, e := range p.entries {
		switch {
		case !matches(e.resource, r):
		case e.hash:
			root.add(e.path).hash = true
			names = append(names, lastName(e.path))
		default:
			root.add(e.path).drop = true
			s.Drops = true
		}
	}
	if !root.leaf() {
		s.Project = func(object map[string]any, hash decode.Hash) bool {
			w := walk{hash: hash}
			return w.members([]*node{&root}, object)
		}
		s.Mentions = func(text []byte) bool { return mentions(text, names) }
	}
	return s
}

// lastName returns the last name in a path in its JSON form, with quotes. It returns "" if JSON
// allows several forms of the name, or if the path has no name. If lastName returns "", mentions reports
// true for every text.
func lastName(path []step) string {
	for _, s := range slices.Backward(path) {
		if s.name != "" {
			if strings.Trim(s.name, jsonPlain) != "" {
				return ""
			}
			return `"` + s.name + `"`
		}
	}
	return ""
}

// jsonPlain are the characters that JSON writes unchanged, or as \u and four digits.
const jsonPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// mentions reports whether the text of an object might contain one of the names. A text with \u might
// contain any name.
func mentions(text []byte, names []string) bool {
	return bytes.Contains(text, []byte(`\u`)) || slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// Unmatched returns the entries that match none of these resources. Such an entry has no effect and
// might be a mistake.
func (p Projections) Unmatched(resources []event.Resource) []string {
	var unmatched []string
	for _, e := range p.entries {
		if !e.matchesAny(resources) {
			unmatched = append(unmatched, e.text)
		}
	}
	return unmatched
}
