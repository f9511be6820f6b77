package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/harness"
)

// event is a message as a subscriber parses it. The parser uses none of the forwarder's code, so that the
// demo detects differences between the code and the documentation.
type event struct {
	subject                                     string // the NATS subject or the record key
	kind                                        string // the last part of the type, such as "created" or "snapshot completed"
	resource                                    string // in the format of kubectl, such as "deployments.apps"
	namespace, name                             string // name is empty if the event isn't about an object
	id, uid, version, previous, sequence, cause string // attributes
	object                                      map[string]any
}

const typePrefix = "io.kuberelay."

func readEvent(r harness.Received) (event, error) {
	a := r.Attributes
	if a["specversion"] != "1.0" || a["id"] == "" || !strings.HasPrefix(a["type"], typePrefix) {
		return event{}, fmt.Errorf("the message on %s is not a CloudEvent of Kuberelay: %v", r.Subject, a)
	}
	e := event{
		subject: r.Subject, kind: strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(a["type"], typePrefix), "object."), ".", " "),
		namespace: a["namespace"], id: a["id"], uid: a["uid"], version: a["resourceversion"], previous: a["previousversion"],
		sequence: a["sequence"], cause: a["cause"],
	}
	path := strings.Split(strings.TrimPrefix(a["subject"], "/"), "/") // api/v1/... or apis/<group>/<version>/...
	if strings.Contains(a["type"], ".object.") {
		last, err := url.PathUnescape(path[len(path)-1])
		if e.name = a["name"]; err != nil || e.name == "" || last != e.name {
			return event{}, fmt.Errorf("event %s of %q has the name %q", e.id, a["subject"], e.name)
		}
		path = path[:len(path)-1]
	}
	e.resource = path[len(path)-1]
	if path[0] == "apis" {
		e.resource += "." + path[1]
	}
	if e.name == "" {
		return e, nil
	}
	return e, json.Unmarshal(r.Data, &e.object)
}

// field returns a field of the object as text, or "" if the object doesn't have it.
func (e event) field(path string) string {
	value, ok, err := unstructured.NestedFieldNoCopy(e.object, strings.Split(path, ".")...)
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprint(value)
}

func (e event) String() string {
	return fmt.Sprintf("%s %s, version %s", objectName(e.resource, e.namespace, e.name), e.kind, e.version)
}

// objectName returns the name of an object in the output, such as "deployments.apps shop/web".
func objectName(resource, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return resource + " " + name
}

// events returns all events of objects and all snapshot markers so far. It returns an error if they break
// a promise.
func (s *stage) events() (all []event, err error) {
	received, missed, err := s.recorder.All()
	if err == nil && missed {
		err = errors.New("a message was removed before it was read")
	}
	for i := 0; err == nil && i < len(received); i++ {
		kind := received[i].Kind()
		if received[i].Body == nil && kind == "" || kind == "resolved" { // a tombstone, or a consistency point
			continue
		}
		var e event
		e, err = readEvent(received[i])
		all = append(all, e)
	}
	if err == nil {
		err = check(all)
	}
	return all, err
}

// check checks the promises to subscribers: no event arrives twice or out of order, and the events of an
// object have no gap.
func check(events []event) error {
	ids, lasts := map[string]bool{}, map[string]event{}
	for _, e := range events {
		last, known := lasts[e.subject]
		live := known && last.kind != "deleted"
		switch {
		case ids[e.id]:
			return fmt.Errorf("a promise is broken: %s arrived twice", e)
		case e.name == "":
		case live && (e.uid != last.uid || e.previous != last.version), known && e.sequence < last.sequence,
			live == (e.kind == "created" || e.kind == "snapshot"):
			return fmt.Errorf("a promise is broken: %s, after version %q, arrived after %s", e, e.previous, last)
		}
		ids[e.id] = true
		if e.name != "" {
			lasts[e.subject] = e
		}
	}
	return nil
}

// state returns the objects that exist according to the events, with their versions.
func state(events []event) map[string]string {
	versions := map[string]string{}
	for _, e := range events {
		switch name := objectName(e.resource, e.namespace, e.name); {
		case e.name == "":
		case e.kind == "deleted":
			delete(versions, name)
		default:
			versions[name] = e.version
		}
	}
	return versions
}

// summary prints the result of the demo after all acts.
func (s *stage) summary(took time.Duration) error {
	events, err := s.events()
	objects, subjects, deletes, recovered := 0, map[string]bool{}, 0, 0
	for _, e := range events {
		if e.name == "" {
			continue
		}
		objects++
		subjects[e.subject] = true
		if e.kind == "deleted" {
			deletes++
			if e.cause == "reconcile" {
				recovered++
			}
		}
	}
	s.say("all acts are done")
	s.done("%d events of %d objects in %s: 0 lost, 0 twice, 0 out of order", objects, len(subjects), took.Round(time.Second))
	s.note("not lost: after each act, the state rebuilt from the events equaled that of the API server, object by object and")
	s.note("version by version, and each event's previousversion was the version of the event before it")
	s.note("%d of the %d deletes have the cause reconcile: the forwarder found them by comparing the bus with the cluster", recovered, deletes)
	return err
}

// want describes events that an act must cause.
type want struct {
	kind     string // such as "created"; if empty, any event of an existing object
	resource string
	name     string   // name of the object; a name that ends with a dash is a prefix
	count    int      // number of objects; 0 means 1
	cause    string   // if empty, any cause
	fields   []string // pairs of path and value that the object must have, all in the same event
}

func created(resource, name string) want {
	return want{kind: "created", resource: resource, name: name}
}
func deleted(resource, name string) want {
	return want{kind: "deleted", resource: resource, name: name}
}

// snapshot returns a want for the end of a resource's snapshot.
func snapshot(resource string) want { return want{kind: "snapshot completed", resource: resource} }

// shows returns a want for any event of an object with these fields. It accepts any kind, because an event
// can have a later state than the change that caused it.
func shows(resource, name string, fields ...string) want {
	return want{resource: resource, name: name, fields: fields}
}

func (w want) times(count int) want         { w.count = count; return w }
func (w want) because(cause string) want    { w.cause = cause; return w }
func (w want) with(path, value string) want { w.fields = []string{path, value}; return w }

func (w want) matches(e event) bool {
	for pair := range slices.Chunk(w.fields, 2) {
		if e.field(pair[0]) != pair[1] {
			return false
		}
	}
	return e.resource == w.resource &&
		(e.name == w.name || strings.HasSuffix(w.name, "-") && strings.HasPrefix(e.name, w.name)) &&
		(w.kind == e.kind || w.kind == "" && e.kind != "deleted") && (w.cause == "" || w.cause == e.cause)
}

// String describes the events with the resource names of kubectl.
func (w want) String() string {
	resource, _, _ := strings.Cut(w.resource, ".")
	if w.name == "" {
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
	for pair := range slices.Chunk(w.fields, 2) {
		text += fmt.Sprintf(" %s=%s", pair[0][strings.LastIndex(pair[0], ".")+1:], pair[1])
	}
	if w.cause != "" {
		text += " (cause " + w.cause + ")"
	}
	return text
}

// missing returns an error that names the wants that the events don't satisfy.
func missing(wants []want, events []event) (err error) {
	for _, w := range wants {
		seen := map[string]bool{}
		for _, e := range events {
			if w.matches(e) {
				seen[e.uid] = true
			}
		}
		if len(seen) < cmp.Or(w.count, 1) {
			err = errors.Join(err, errors.New(w.String()))
		}
	}
	return err
}
