package informers

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// ownerReferences is the path, and the short name of the path, of an object's owners.
const ownerReferences = "ownerReferences"

// referencePath is where objects refer to others: one field, or a list of them.
type referencePath struct {
	resource string // "deployments" or "deployments.apps"; "" for all
	fields   []string
}

// parsePath takes «path» or «resource:path», where the path is of names with dots between
// them; lists on the way are gone through, with or without [*]. The configuration has
// checked it.
func parsePath(s string) referencePath {
	var p referencePath
	if resource, path, ok := strings.Cut(s, ":"); ok {
		p.resource, s = resource, path
	}
	if s == ownerReferences {
		s = "metadata." + s
	}
	p.fields = strings.Split(strings.ReplaceAll(s, "[*]", ""), ".")
	return p
}

func (p referencePath) concerns(r event.Resource) bool {
	return p.resource == "" || p.resource == r.Resource || p.resource == r.GroupResource().String()
}

// pathsOf gives the paths that concern a resource.
func pathsOf(paths []referencePath, r event.Resource) []referencePath {
	return slices.DeleteFunc(slices.Clone(paths), func(p referencePath) bool { return !p.concerns(r) })
}

// references gives what an object, of which this is the JSON, refers to at some paths, each
// once. Only what is at the paths is decoded.
func references(paths []referencePath, object []byte) []event.Reference {
	var found []event.Reference
	for _, p := range paths {
		walk(bytes.TrimSpace(object), p.fields, func(m map[string]any) {
			if ref, ok := referenceOf(m); ok && !slices.Contains(found, ref) {
				found = append(found, ref)
			}
		})
	}
	return found
}

// walk is of a valid text.
func walk(text []byte, path []string, each func(map[string]any)) {
	s := jsonscan.New(text)
	switch {
	case text[0] == '[':
		for s.Array(); s.NextItem(); {
			walk(s.Skip(), path, each)
		}
	case text[0] == '{' && len(path) > 0:
		for s.Object(); s.Next(); {
			next := string(s.Key()) == path[0]
			if v := s.Skip(); next {
				walk(v, path[1:], each)
			}
		}
	case text[0] == '{':
		var m map[string]any
		if json.Unmarshal(text, &m) == nil {
			each(m)
		}
	}
}

// referenceOf reads an ObjectReference, an OwnerReference, or any other field that names a
// kind and an object. What names no kind is of a type that only its reader knows.
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
