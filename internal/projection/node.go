package projection

// node is a place that paths lead to, or through. Those of several paths are walked
// together, so that each sees an object as it was.
type node struct {
	drop  bool // what is at this place is dropped
	names map[string]*node
	every *node
	where []filtered
}

type filtered struct {
	condition *condition
	node      *node
}

// leaf tells whether no path goes on from here.
func (n *node) leaf() bool { return len(n.names) == 0 && n.every == nil && len(n.where) == 0 }

func (n *node) add(path []step) {
	for _, s := range path {
		n = n.next(s)
	}
	n.drop = true
}

// next gives the node after a step, which it makes if need be.
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

// enough is for the paths that commonly meet at one place, so that a list of them stays
// on the stack.
const enough = 4

// drop removes from v what the nodes say, and tells whether that was anything.
func drop(nodes []*node, v any) (rest any, dropped bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, dropMembers(nodes, v)
	case []any:
		return dropElements(nodes, v)
	}
	return v, false
}

func dropMembers(nodes []*node, object map[string]any) (dropped bool) {
	for _, n := range nodes {
		if n.every != nil {
			for name, v := range object {
				dropped = dropMember(nodes, object, name, v) || dropped
			}
			return dropped
		}
	}
	for _, n := range nodes {
		for name := range n.names {
			if v, ok := object[name]; ok {
				dropped = dropMember(nodes, object, name, v) || dropped
			}
		}
	}
	return dropped
}

func dropMember(nodes []*node, object map[string]any, name string, v any) bool {
	var few [enough]*node
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
	rest, dropped := drop(next, v)
	switch {
	case !dropped:
	case empty(rest):
		delete(object, name)
	default:
		object[name] = rest
	}
	return dropped
}

func dropElements(nodes []*node, list []any) (rest []any, dropped bool) {
	rest = list[:0]
	var few [enough]*node
	for _, element := range list {
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
		element, some := drop(next, element)
		dropped = dropped || some
		rest = append(rest, element)
	}
	return rest, dropped
}

func anyDrops(nodes []*node) bool {
	for _, n := range nodes {
		if n.drop {
			return true
		}
	}
	return false
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
