package references

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Owners is the short name of the path of an object's owners.
const Owners = "ownerReferences"

// path is where objects refer to others: one field, or a list of them.
type path struct {
	resource string // "deployments" or "deployments.apps"; "" for all
	fields   []string
}

// Paths are the fields by which objects of one resource refer to others.
type Paths []path

// parsePath parses "path" or "resource:path", where the path has names with dots between
// them. Lists on the way are walked, with or without [*]. The configuration was checked.
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

// of returns the paths that concern a resource.
func (p Paths) of(r event.Resource) Paths {
	return slices.DeleteFunc(slices.Clone(p), func(p path) bool {
		return p.resource != "" && p.resource != r.Resource && p.resource != r.GroupResource().String()
	})
}

// Unmatched returns the paths of a configuration that are limited to none of these resources. They
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

// maxReferences is the number of fields that are read for the references of an object. The
// longest lists that Kubernetes itself writes, the endpoints of an EndpointSlice, have 1000.
const maxReferences = 1000

// Read returns what an object refers to, each reference once. It decodes only what is at
// the paths of the object, which is valid JSON, and at most the first maxReferences fields
// there. all is false if there are more.
func (p Paths) Read(object []byte) (refs []event.Reference, all bool) {
	left := maxReferences
	found := map[event.Reference]struct{}{}
	for _, path := range p {
		all := walk(bytes.TrimSpace(object), path.fields, func(text []byte) bool {
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

// walk calls each with every object at a path of a valid JSON text, until it returns false.
func walk(text []byte, path []string, each func([]byte) bool) bool {
	s := jsonscan.New(text)
	switch {
	case text[0] == '[':
		for s.Array(); s.NextItem(); {
			if !walk(s.Skip(), path, each) {
				return false
			}
		}
	case text[0] == '{' && len(path) > 0:
		for s.Object(); s.Next(); {
			next := string(s.Key()) == path[0]
			if v := s.Skip(); next && !walk(v, path[1:], each) {
				return false
			}
		}
	case text[0] == '{':
		return each(text)
	}
	return true
}

// referenceOf reads an ObjectReference, an OwnerReference, or any other field that names a kind and
// an object. It returns false for a field that names no kind.
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
