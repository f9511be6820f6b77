package main

import (
	"cmp"
	"fmt"
	"strings"
)

// want is what events an act must bring.
type want struct {
	kind     string // "created"; any state of the object if empty
	resource string // as kubectl takes it: "deployments.apps"
	name     string // of the object; with a dash at its end, how the name begins
	count    int    // of how many objects, 1 if 0
	cause    string // any if empty
	field    string // of the object, and what it must hold
	value    string
}

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
func shows(resource, name, field, value string) want {
	return want{resource: resource, name: name, field: field, value: value}
}

func (w want) times(count int) want          { w.count = count; return w }
func (w want) because(cause string) want     { w.cause = cause; return w }
func (w want) with(field, value string) want { w.field, w.value = field, value; return w }

func (w want) matches(e event) bool {
	return e.resource == w.resource &&
		(e.name == w.name || strings.HasSuffix(w.name, "-") && strings.HasPrefix(e.name, w.name)) &&
		(w.kind == e.kind || w.kind == "" && e.kind != "deleted") &&
		(w.cause == "" || w.cause == e.cause) &&
		(w.field == "" || e.field(w.field) == w.value)
}

func (w want) String() string {
	resource, _, _ := strings.Cut(w.resource, ".")
	if w.kind == snapshotCompleted {
		return "snapshot of " + resource
	}
	text := strings.TrimSuffix(resource+" "+w.name, " ")
	if strings.HasSuffix(w.name, "-") {
		text += "…"
	}
	if w.count > 1 {
		text = fmt.Sprintf("%d %s", w.count, text)
	}
	if w.kind != "" {
		text += " " + w.kind
	}
	if w.field != "" {
		text += fmt.Sprintf(" %s=%s", w.field[strings.LastIndex(w.field, ".")+1:], w.value)
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
