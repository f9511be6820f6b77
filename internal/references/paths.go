package references

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Owners is the short form of the path to an object's owners.
const Owners = "ownerReferences"

// path is the location of references in an object: a field, or a list of fields.
type path struct {
	resource string // "deployments" or "deployments.apps"; "" for all resources
	fields   []string
}

// Paths are the fields by which objects of one resource refer to others.
type Paths []path

// parsePath parses "path" or "resource:path". A path consists of names that are separated by dots.
// It can lead through lists, with or without [*]. The configuration has already been validated.
func parsePath(s string) path {
	var p path
	if resource, path, ok := strings.Cut(s, ":"); ok {
		p.resource, s = resource, path
	}
	if s == Owners {
		s = "metadata." + s
	}
	p.fields = strings.Split(strings.ReplaceAll(s, "[*]", ""), ".")
	return p
}

func (p path) isOwners() bool { return slices.Equal(p.fields, []string{"metadata", Owners}) }

// of returns the paths that apply to a resource.
func (p Paths) of(r event.Resource) Paths {
	return slices.DeleteFunc(slices.Clone(p), func(p path) bool {
		return p.resource != "" && p.resource != r.Resource && p.resource != r.GroupResource().String()
	})
}

// Unmatched returns the paths of a configuration that apply to none of the resources. Such paths
// have no effect.
func Unmatched(paths []string, resources []event.Resource) (unmatched []string) {
	for _, s := range paths {
		p := Paths{parsePath(s)}
		if !slices.ContainsFunc(resources, func(r event.Resource) bool { return len(p.of(r)) > 0 }) {
			unmatched = append(unmatched, s)
		}
	}
	return unmatched
}

// maxReferences is the maximum number of reference fields that are read from one object. The longest
// lists that Kubernetes itself writes, the endpoints of an EndpointSlice, have 1000 items.
const maxReferences = 1000

// Read returns the references of an object, each once. The object must be valid JSON. Read decodes
// only the fields at the paths, and at most the first maxReferences of them. all is false if the
// object has more.
func (p Paths) Read(object []byte) (refs []event.Reference, all bool) {
	left := maxReferences
	found := map[event.Reference]struct{}{}
	for _, path := range p {
		s := jsonscan.New(object)
		all := walk(&s, path.fields, func(text []byte) bool {
			if left == 0 {
				return false
			}
			left--
			var m map[string]any
			if json.Unmarshal(text, &m) != nil {
				return true
			}
			ref, ok := referenceOf(m)
			if _, known := found[ref]; ok && !known {
				found[ref] = struct{}{}
				refs = append(refs, ref)
			}
			return true
		})
		if !all {
			return refs, false
		}
	}
	return refs, true
}

// walk reads the next value of a valid JSON text, and calls each with every JSON object at a path in the
// value. It stops and returns false when a call of each returns false. It scans nested values only once,
// because a hostile object can have thousands of nested lists.
func walk(s *jsonscan.Scanner, path []string, each func([]byte) bool) bool {
	switch {
	case s.IsArray():
		for s.Array(); s.NextItem(); {
			if !walk(s, path, each) {
				return false
			}
		}
	case s.IsObject() && len(path) > 0:
		for s.Object(); s.Next(); {
			if string(s.Key()) != path[0] {
				s.Skip()
			} else if !walk(s, path[1:], each) {
				return false
			}
		}
	case s.IsObject():
		return each(s.Skip())
	default:
		s.Skip()
	}
	return true
}

// referenceOf reads an ObjectReference, an OwnerReference, or any other field that names a kind and
// an object. It returns false for a field that lacks the kind or the name, or has an invalid
// apiVersion.
func referenceOf(m map[string]any) (event.Reference, bool) {
	get := func(name string) string {
		s, _ := m[name].(string)
		return strings.Clone(s)
	}
	ref := event.Reference{Group: get("apiGroup"), Kind: get("kind"), Namespace: get("namespace"), Name: get("name"), UID: get("uid")}
	ref.Controller, _ = m["controller"].(bool)
	if v := get("apiVersion"); v != "" {
		gv, err := schema.ParseGroupVersion(v)
		if err != nil {
			return ref, false
		}
		ref.Group = gv.Group
	}
	return ref, ref.Kind != "" && ref.Name != ""
}
