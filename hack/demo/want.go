package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// want is events that an act must bring.
type want struct {
	kind     string  // "created"; any state of the object if empty
	resource string  // as kubectl takes it: "deployments.apps"
	name     string  // of the object; with a dash at its end, how the name begins
	count    int     // of how many objects, 1 if 0
	cause    string  // any if empty
	fields   []field // that the object must have, all in one event
}

type field struct{ path, value string }

func created(resource, name string) want {
	return want{kind: "created", resource: resource, name: name}
}
func deleted(resource, name string) want {
	return want{kind: "deleted", resource: resource, name: name}
}

const snapshotCompleted = "snapshot completed"

// snapshot is that a resource has been sent as it was when the forwarder began.
func snapshot(resource string) want { return want{kind: snapshotCompleted, resource: resource} }

// shows is an event of whatever type with that state of an object. Events may hold a
// later state than that of the change that they are of, so it does not ask how the
// object came to it.
func shows(resource, name, path, value string) want {
	return want{resource: resource, name: name}.with(path, value)
}

func (w want) times(count int) want      { w.count = count; return w }
func (w want) because(cause string) want { w.cause = cause; return w }

func (w want) with(path, value string) want {
	w.fields = append(slices.Clip(w.fields), field{path, value})
	return w
}

func (w want) matches(e event) bool {
	return e.resource == w.resource &&
		(e.name == w.name || strings.HasSuffix(w.name, "-") && strings.HasPrefix(e.name, w.name)) &&
		(w.kind == e.kind || w.kind == "" && e.kind != "deleted") &&
		(w.cause == "" || w.cause == e.cause) &&
		!slices.ContainsFunc(w.fields, func(f field) bool { return e.field(f.path) != f.value })
}

// String is for people, in the words of kubectl.
func (w want) String() string {
	resource, _, _ := strings.Cut(w.resource, ".")
	if w.kind == snapshotCompleted {
		return "all " + resource
	}
	text := strings.TrimSuffix(resource, "s") + "/" + w.name
	if strings.HasSuffix(w.name, "-") {
		text += "…"
	}
	if w.count > 1 {
		text = fmt.Sprintf("%d × %s", w.count, text)
	}
	if w.kind != "" {
		text += " " + w.kind
	}
	for _, f := range w.fields {
		text += fmt.Sprintf(" %s=%s", f.path[strings.LastIndex(f.path, ".")+1:], f.value)
	}
	if w.cause != "" {
		text += " (cause " + w.cause + ")"
	}
	return text
}

// missing are those that the events do not have, or not of enough objects.
func missing(wants []want, events []event) []string {
	var absent []string
	for _, w := range wants {
		seen := map[string]bool{}
		for _, e := range events {
			if w.matches(e) {
				seen[e.uid] = true
			}
		}
		if len(seen) < cmp.Or(w.count, 1) {
			absent = append(absent, w.String())
		}
	}
	return absent
}
