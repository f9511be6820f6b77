package wire

import (
	"errors"
	"strconv"
	"strings"
)

// ChangeOf returns the previous state in the data of a change, and the result of applying the patch
// to that state. Both are nil if the event has no previous state. The result shares no memory with
// that of [Event.ObjectOf].
func (e Event) ChangeOf() (previous, patched Tree, err error) {
	t, err := ParseTree(e.Data)
	if err != nil || e.Get("dataschema") != changeSchema || t["previous"] == nil && t["patch"] == nil {
		return nil, nil, err
	}
	previous, hasPrevious := t["previous"].(Tree)
	patch, hasPatch := t["patch"].([]any)
	if !hasPrevious || !hasPatch {
		return nil, nil, errors.New("the data must have both a previous state and a patch")
	}
	again, _ := ParseTree(e.Data) // a second copy, because the patch changes it
	result := again["previous"]
	for _, element := range patch {
		operation, _ := element.(Tree)
		op, _ := operation["op"].(string)
		path, isText := operation["path"].(string)
		value, hasValue := operation["value"]
		names := strings.Split(path, "/")
		if !isText || names[0] != "" || hasValue != (op != "remove") {
			return nil, nil, errPatch
		}
		if result, err = apply(result, names[1:], op, value); err != nil {
			return nil, nil, err
		}
	}
	patched, isObject := result.(Tree)
	if !isObject {
		return nil, nil, errPatch
	}
	return previous, patched, nil
}

var errPatch = errors.New("the patch cannot be applied to the previous state")

// maxRemoved is the maximum distance from the end of a list at which an element can be removed. The
// forwarder removes at most this number of elements, from the end. Without the limit, many removals at
// the start of a long list would take much work.
const maxRemoved = 4096

// apply applies an operation of RFC 6902 to v, and returns the result. It changes v. As docs/events.md
// says, op is add, remove, or replace, and a new element of a list is added at the end of the list.
func apply(v any, names []string, op string, value any) (_ any, err error) {
	if len(names) == 0 {
		if op != "replace" {
			return nil, errPatch
		}
		return value, nil
	}
	name, rest := unescape.Replace(names[0]), names[1:]
	removes := len(rest) == 0 && op == "remove"
	adds := len(rest) == 0 && op == "add"
	switch v := v.(type) {
	case Tree:
		member, there := v[name]
		switch {
		case adds != !there:
			return nil, errPatch
		case removes:
			delete(v, name)
		case adds:
			v[name] = value
		default:
			v[name], err = apply(member, rest, op, value)
		}
		return v, err
	case []any:
		i, notNumber := strconv.Atoi(name)
		switch {
		case adds && name == "-":
			return append(v, value), nil
		case notNumber != nil, i < 0, i >= len(v), removes && len(v)-i > maxRemoved:
			return nil, errPatch
		case removes:
			return append(v[:i], v[i+1:]...), nil
		}
		v[i], err = apply(v[i], rest, op, value)
		return v, err
	}
	return nil, errPatch
}
