package main

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

// attribute describes an attribute of an event.
type attribute struct {
	name, description string

	// members are additional members of its schema.
	members object

	// isBoolean means that the value is true in the JSON format, and "true" in a header. An event
	// has the attribute only if it is true.
	isBoolean bool
}

// context has the attributes of every event.
var context = []attribute{
	{name: "id", description: "The ID of the event. A change has the same ID whichever forwarder publishes it."},
	{name: "source", description: "The cluster of the event, as /kubernetes/<cluster>.", members: object{"format", "uri-reference", "pattern", "^/kubernetes/."}},
	{name: "specversion", description: "The version of CloudEvents.", members: object{"const", "1.0"}},
	{name: "type", description: "The type of the event."},
	{name: "subject", description: "The API path of the object or the resource.", members: object{"pattern", "^/"}},
	{name: "time", description: "The time when the forwarder observed the change. Don't sort events by time: use sequence.", members: object{"format", "date-time", "pattern", "Z$"}},
	{name: "datacontenttype", description: "The media type of the data.", members: object{"const", "application/json"}},
	{name: "partitionkey", description: "The identity of the object, independent of its version: <cluster>/<group or core>/<resource>/<namespace or _>/<name>. The keys of other events begin with <cluster>/_control/.",
		members: object{"pattern", "^[^/]+(/[^/]+){4}$"}},
}

// ofObject has the additional attributes of the events of an object.
var ofObject = []attribute{
	{name: "dataschema", description: "The schema of a change, if the data is one. Absent if the data is the object.", members: object{"const", event.SchemaChange}},
	{name: "sequence", description: "<epoch>.<resourceVersion>, padded with zeros, so that it sorts as text. The order is that of the states of an object.", members: object{"pattern", `^[0-9]{4}\.`}},
	{name: "apiversion", description: "The apiVersion of the object."},
	{name: "kind", description: "The kind of the object."},
	{name: "namespace", description: "The namespace of the object. Absent if the object is cluster-scoped."},
	{name: "name", description: "The name of the object."},
	{name: "uid", description: "The UID of the object."},
	{name: "resourceversion", description: "The resourceVersion of the object."},
	{name: "previousversion", description: "The resourceVersion in the previous event of the object. Absent on the first event."},
	{name: "changed", description: "JSON Pointers of the places that changed, joined by commas. Absent if they aren't known."},
	{name: "digest", description: "A digest of the published content.", members: object{"pattern", "^([0-9a-f]{16}|[0-9a-f]{32})$"}},
	{name: "cause", description: "How the forwarder learned of the change.",
		members: object{"enum", []event.Cause{event.CauseWatch, event.CauseSnapshot, event.CauseReconcile}}},
	{name: "ownerkind", description: "The kind of the controller at the top of the owner chain."},
	{name: "ownername", description: "The name of the controller at the top of the owner chain."},
	{name: "finalstateunknown", description: "true if the last state of a removed object isn't known. The data is then only the identity of the object.", isBoolean: true},
	{name: "truncated", description: "true if the object is too large for the bus, or nested too deeply. The data then has only apiVersion, kind, and metadata.", isBoolean: true},
}

// ofPoint has the additional attributes of a consistency point.
var ofPoint = []attribute{
	{name: "group", description: "The group. Absent for the core group."},
	{name: "resource", description: "The plural name of the resource."},
	{name: "resourceversion", description: "Every change up to this version is on the bus."},
	{name: "objects", description: "The number of selected objects that the watches showed when the forwarder created the point.", members: object{"pattern", "^[0-9]+$"}},
}

// eventType describes a type of event.
type eventType struct {
	typ         event.Type
	name, title string
	description string

	more     []attribute // attributes in addition to context
	required []string    // names of the required attributes in more
	isObject bool
	key      string // pattern of the partition key of a marker
	data     string // name of the schema for the data; "" for the events of an object
}

// required returns the names of the attributes that every event of an object has, and of more.
func required(more ...string) []string {
	return append([]string{"sequence", "name", "uid", "cause"}, more...)
}

// without returns the attributes of an object's events except the named ones.
func without(names ...string) []attribute {
	return slices.DeleteFunc(slices.Clone(ofObject), func(a attribute) bool { return slices.Contains(names, a.name) })
}

// types has all types of events. docs/events.md describes them.
var types = []eventType{
	{
		typ: event.Created, name: "created", title: "Created", description: "An object is new, or is selected again.",
		isObject: true, more: without("changed", "finalstateunknown"), required: required("apiversion", "kind", "resourceversion"),
	},
	{
		typ: event.Updated, name: "updated", title: "Updated", description: "An object changed.",
		isObject: true, more: without("finalstateunknown"), required: required("apiversion", "kind", "resourceversion"),
	},
	{
		typ: event.Deleted, name: "deleted", title: "Deleted", description: "An object is gone. The data is its last known state.",
		isObject: true, more: without("changed"), required: required(),
	},
	{
		typ: event.Snapshot, name: "snapshot", title: "Snapshot", description: "An object existed before the first completed sync of its resource.",
		isObject: true, more: without("changed", "finalstateunknown"), required: required("apiversion", "kind", "resourceversion"),
	},
	{
		typ: event.Deselected, name: "deselected", title: "Deselected", description: "An object exists but is no longer selected. The data is its last known state.",
		isObject: true, more: without("changed"), required: required(),
	},
	{
		typ: event.SnapshotStarted, name: "snapshotStarted", title: "Snapshot started", description: "The first sync of a resource begins.",
		key: "/_control/snapshot/[^/]+/[^/]+$", data: "snapshotData",
	},
	{
		typ: event.SnapshotCompleted, name: "snapshotCompleted", title: "Snapshot completed", description: "Every object of the first sync of a resource is on the bus.",
		key: "/_control/snapshot/[^/]+/[^/]+$", data: "snapshotData",
	},
	{
		typ: event.Resolved, name: "resolved", title: "Consistency point", description: "Every change of a resource up to a version precedes this event on the bus.",
		more: ofPoint, required: []string{"resource", "resourceversion", "objects"},
		key: "/_control/resolved/[^/]+/[^/]+$", data: "resolvedData",
	},
	{
		typ: event.ClusterClaimed, name: "clusterClaimed", title: "Claim", description: "From this event on, this cluster owns the cluster name.",
		key: "/_control/cluster/_/claimed$", data: "claimData",
	},
	{
		typ: event.WriterStarted, name: "writerStarted", title: "Writer started", description: "From this record on, no earlier forwarder can write to the partition. Kafka only.",
		key: "/_control/writer/[^/]+/[0-9]+$", data: "writerData",
	},
}

// schema returns the schema of the attribute's value, in the JSON format or in a header.
func (a attribute) schema(inHeader bool) object {
	s := object{"description", a.description}
	switch {
	case a.isBoolean && inHeader:
		return s.with("type", "string", "const", "true")
	case a.isBoolean:
		return s.with("type", "boolean", "const", true)
	}
	s = s.with("type", "string")
	if len(a.members) == 0 {
		s = s.with("minLength", 1)
	}
	return s.with(a.members...)
}

// fixed returns the constraints of this type on the value of an attribute.
func (t eventType) fixed(name string) object {
	switch {
	case name == "type":
		return object{"const", t.typ}
	case name == "partitionkey" && t.key != "":
		return object{"pattern", "^[^/]+" + t.key}
	}
	return nil
}
