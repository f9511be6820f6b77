package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// event is what a subscriber has of a message. It is read here without any of the
// forwarder's code, by what the documentation says of events, so that the demo
// finds out where the two differ.
type event struct {
	busSubject string // the NATS subject or the record's key: the object's identity
	kind       string // the last word of the type, "created", or "snapshot completed"
	resource   string // "deployments.apps", as kubectl takes it
	namespace  string
	name       string

	id, uid, version, previous, sequence, cause string // attributes

	object map[string]any // data: the Kubernetes object
}

const typePrefix = "io.kuberelay."

// readEvent reads a message in binary mode, whose attributes lookUp gives.
func readEvent(subject string, data []byte, lookUp func(attribute string) (string, error)) (event, error) {
	var bad error
	get := func(attribute string) string {
		value, err := lookUp(attribute)
		if err != nil {
			bad = err
		}
		return value
	}
	e := event{
		busSubject: subject,
		kind:       strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(get("type"), typePrefix), "object."), ".", " "),
		id:         get("id"), uid: get("uid"), version: get("resourceversion"), previous: get("previousversion"),
		sequence: get("sequence"), cause: get("cause"),
	}
	switch {
	case bad != nil:
	case get("specversion") != "1.0" || !strings.HasPrefix(get("type"), typePrefix) || e.id == "":
		bad = fmt.Errorf("it is no CloudEvent of Kuberelay: id %q, type %q", e.id, get("type"))
	case e.kind == "writer started", e.kind == "cluster claimed": // of no object
	default:
		if bad = e.readPath(get("subject")); bad == nil {
			bad = json.Unmarshal(data, &e.object)
		}
	}
	if bad != nil {
		return event{}, fmt.Errorf("read the message on %s: %w", subject, bad)
	}
	return e, nil
}

// readPath reads which object the event is of from its API path.
func (e *event) readPath(path string) error {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range segments {
		var err error
		if segments[i], err = url.PathUnescape(segments[i]); err != nil {
			return err
		}
	}
	group := ""
	if segments[0] == "apis" && len(segments) > 1 {
		group, segments = "."+segments[1], segments[1:]
	}
	if len(segments) > 4 && segments[2] == "namespaces" {
		e.namespace, segments = segments[3], segments[2:]
	}
	switch len(segments) {
	case 4:
		e.name = segments[3]
	case 3: // of the resource as a whole: a marker
	default:
		return fmt.Errorf("path %q", path)
	}
	e.resource = segments[2] + group
	return nil
}

// isMarker tells whether the event is of a resource, not of an object.
func (e event) isMarker() bool { return e.name == "" }

// field is the text of one of the object's fields, "" if it is not there.
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

// objectName is for people: "deployments.apps shop/web".
func objectName(resource, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return resource + " " + name
}
