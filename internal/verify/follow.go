package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// followedSet is a resource whose objects are selected by reference: an object is selected if a
// selected object refers to it.
type followedSet struct {
	resource resource
	referred map[event.Key]bool
	refers   map[event.Key][]reference // the references of each of its objects
}

// reference is a reference from a field of an object to another object.
type reference struct {
	kind            schema.GroupKind
	namespace, name string
}

// follow finds the objects that selected objects refer to, directly or through others. It records in
// unfollowed what it couldn't read.
func (v *verification) follow(ctx context.Context) error {
	if len(v.opts.Follow) == 0 {
		return nil
	}
	v.followed, v.unfollowed = map[schema.GroupResource]*followedSet{}, map[string]string{}
	sets := map[schema.GroupResource]*followedSet{}
	type found struct {
		from event.Key
		ref  reference
	}
	var due []found
	for _, gr := range sortedResources(v.selection.selected) {
		r := v.selection.selected[gr]
		err := v.listReferences(ctx, r, true, func(k event.Key, refs []reference) {
			for _, ref := range refs {
				due = append(due, found{k, ref})
			}
		})
		if err != nil {
			return err
		}
	}
	for len(due) > 0 {
		next := due[len(due)-1]
		due = due[:len(due)-1]
		r, ok := v.selection.kinds[next.ref.kind]
		if !ok {
			if err := v.selection.failed[next.ref.kind.Group]; err != nil {
				v.unfollowed["*."+next.ref.kind.Group] = fmt.Sprintf("discovery: %v", err)
			}
			continue
		}
		if _, whole := v.selection.selected[r.GroupResource()]; whole {
			continue
		}
		k := event.Key{Group: r.Group, Resource: r.Resource, Namespace: next.ref.namespace, Name: next.ref.name}
		switch {
		case !r.Namespaced:
			k.Namespace = ""
		case k.Namespace == "":
			k.Namespace = next.from.Namespace
		}
		set := sets[r.GroupResource()]
		if set == nil {
			set = &followedSet{resource: r, referred: map[event.Key]bool{}, refers: map[event.Key][]reference{}}
			sets[r.GroupResource()] = set
			if err := v.listReferences(ctx, r, false, func(k event.Key, refs []reference) { set.refers[k] = refs }); err != nil {
				return err
			}
		}
		if set.referred[k] || !v.cluster.coverage.has(k.Namespace) {
			continue
		}
		set.referred[k] = true
		for _, ref := range set.refers[k] {
			due = append(due, found{k, ref})
		}
	}
	v.followed = sets
	return nil
}

// listReferences lists a resource and calls each with the references of each object. It records a
// resource that can't be listed, because verify then doesn't know everything that is selected.
func (v *verification) listReferences(ctx context.Context, r resource, selected bool, each func(event.Key, []reference)) error {
	_, err := v.cluster.listAll(ctx, r, view{selected: selected}, func() {}, func(i item) error {
		var refs []reference
		if !v.cluster.selectsContent(r, i.tree) {
			return nil
		}
		left := maxReferences
		for _, path := range v.opts.Follow {
			refs = appendReferences(refs, path, r, i.tree, &left)
		}
		each(i.key, refs)
		return nil
	})
	switch {
	case err == nil, isUnserved(err):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case isRefused(err):
		v.unfollowed[r.GroupResource().String()] = whatFailed(r.GroupResource(), err)
		return nil
	}
	return errors.New(whatFailed(r.GroupResource(), err))
}

// maxReferences is the maximum number of fields of an object that the forwarder reads as references
// (docs/resources.md).
const maxReferences = 1000

// appendReferences appends the references of an object at a path, such as "spec.ref" or
// "resource:spec.ref". If a field on the path is a list, it follows every item. left is the number of
// fields that it can still read in the object.
func appendReferences(refs []reference, path string, r resource, t tree, left *int) []reference {
	if of, rest, ok := strings.Cut(path, ":"); ok {
		if of != r.Resource && of != r.GroupResource().String() {
			return refs
		}
		path = rest
	}
	if path == "ownerReferences" {
		path = "metadata.ownerReferences"
	}
	level := []any{any(t)}
	for _, field := range strings.Split(strings.ReplaceAll(path, "[*]", ""), ".") {
		var below []any
		for _, x := range flatten(level) {
			if m, ok := x.(tree); ok && m[field] != nil {
				below = append(below, m[field])
			}
		}
		level = below
	}
	for _, x := range flatten(level) {
		m, ok := x.(tree)
		if !ok {
			continue
		}
		if *left--; *left < 0 {
			break
		}
		get := func(name string) string { s, _ := m[name].(string); return s }
		gv, err := schema.ParseGroupVersion(get("apiVersion"))
		if err != nil || get("kind") == "" || get("name") == "" {
			continue
		}
		group := gv.Group
		if get("apiVersion") == "" {
			group = get("apiGroup")
		}
		refs = append(refs, reference{schema.GroupKind{Group: group, Kind: get("kind")}, get("namespace"), get("name")})
	}
	return refs
}

// flatten replaces each list with its elements, including nested lists.
func flatten(level []any) []any {
	var all []any
	for _, x := range level {
		if list, ok := x.([]any); ok {
			all = append(all, flatten(list)...)
		} else {
			all = append(all, x)
		}
	}
	return all
}
