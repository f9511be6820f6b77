package projection

import (
	"slices"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/event/decode"
)

// node is a place in an object at which a path ends or through which it continues. One walk follows
// all paths together, so that each path sees the object before any drop or hash.
type node struct {
	drop, hash bool // what happens to the value at this place
	names      map[string]*node
	every      *node
	where      []filtered
}

type filtered struct {
	condition *condition
	node      *node
}

// leaf reports whether no path continues from here.
func (n *node) leaf() bool { return len(n.names) == 0 && n.every == nil && len(n.where) == 0 }

// add adds a path and returns its last node.
func (n *node) add(path []step) *node {
	for _, s := range path {
		n = n.next(s)
	}
	return n
}

// next returns the node after a step, and creates it if necessary.
func (n *node) next(s step) *node {
	switch {
	case s.where != nil:
		f := filtered{s.where, &node{}}
		n.where = append(n.where, f)
		return f.node
	case s.every:
		if n.every == nil {
			n.every = &node{}
		}
		return n.every
	}
	if n.names == nil {
		n.names = map[string]*node{}
	}
	if n.names[s.name] == nil {
		n.names[s.name] = &node{}
	}
	return n.names[s.name]
}

// inlineNodes is the usual maximum number of paths that meet at one place. A list of this length
// stays on the stack.
const inlineNodes = 4

// walk is one pass over an object.
type walk struct {
	hash decode.Hash
	path []string // path from the root to the value
}

// value drops and hashes the parts of v that the nodes select. It returns the rest of v, and
// reports whether it dropped anything.
func (w *walk) value(nodes []*node, v any) (rest any, dropped bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, w.members(nodes, v)
	case []any:
		return w.elements(nodes, v)
	}
	return v, false
}

func (w *walk) members(nodes []*node, object map[string]any) (dropped bool) {
	for _, n := range nodes {
		if n.every != nil {
			for name, v := range object {
				dropped = w.member(nodes, object, name, v) || dropped
			}
			return dropped
		}
	}
	for i, n := range nodes {
		for name := range n.names {
			if v, ok := object[name]; ok && !anyNames(nodes[:i], name) {
				dropped = w.member(nodes, object, name, v) || dropped
			}
		}
	}
	return dropped
}

// anyNames reports whether one of the nodes has a path with this name. If so, the member was
// already visited.
func anyNames(nodes []*node, name string) bool {
	for _, n := range nodes {
		if n.names[name] != nil {
			return true
		}
	}
	return false
}

func (w *walk) member(nodes []*node, object map[string]any, name string, v any) bool {
	var few [inlineNodes]*node
	next := few[:0]
	for _, n := range nodes {
		if child := n.names[name]; child != nil {
			next = append(next, child)
		}
		if n.every != nil {
			next = append(next, n.every)
		}
	}
	if anyDrops(next) {
		delete(object, name)
		return true
	}
	w.path = append(w.path, name)
	defer func() { w.path = w.path[:len(w.path)-1] }()
	rest, dropped := w.value(next, v)
	switch {
	case dropped && empty(rest):
		delete(object, name)
	case anyHashes(next):
		object[name] = w.hash(w.path, rest)
	case dropped:
		object[name] = rest
	}
	return dropped
}

func (w *walk) elements(nodes []*node, list []any) (rest []any, dropped bool) {
	rest = list[:0]
	var few [inlineNodes]*node
	for i, element := range list {
		next := few[:0]
		for _, n := range nodes {
			if n.every != nil {
				next = append(next, n.every)
			}
			for _, f := range n.where {
				if f.condition.matches(element) {
					next = append(next, f.node)
				}
			}
		}
		if anyDrops(next) {
			dropped = true
			continue
		}
		if len(next) > 0 {
			var some bool
			w.path = append(w.path, strconv.Itoa(i))
			if element, some = w.value(next, element); anyHashes(next) {
				element = w.hash(w.path, element)
			}
			w.path = w.path[:len(w.path)-1]
			dropped = dropped || some
		}
		rest = append(rest, element)
	}
	return rest, dropped
}

func anyDrops(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return n.drop })
}

func anyHashes(nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return n.hash })
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
