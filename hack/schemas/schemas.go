package main

import (
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
)

const (
	draft = "https://json-schema.org/draft/2020-12/schema"

	schemaObject = "https://kuberelay.io/schemas/object/v1"
	schemaEvent  = "https://kuberelay.io/schemas/event/v1"
)

// reference returns a reference to a named schema. A schema can have different paths in different
// documents, so each document has its own reference function.
type reference func(name string) object

func inDefs(name string) object { return object{"$ref", "#/$defs/" + name} }

func nullOr(schema object) []object { return []object{schema, {"type", "null"}} }

func text(description string) object { return object{"description", description, "type", "string"} }

func count(description string) object {
	return object{"description", description, "type", "integer", "minimum", 0}
}

func moment(description string) object { return text(description).with("format", "date-time") }

// structure returns the schema of an object with these members. All members are required except the
// optional ones.
func structure(title, description string, members object, optional ...string) object {
	var names []string
	for i := 0; i < len(members); i += 2 {
		if name := members[i].(string); !slices.Contains(optional, name) {
			names = append(names, name)
		}
	}
	return object{"title", title, "description", description, "type", "object", "required", names, "properties", members}
}

// kubernetesObject returns the schema of any Kubernetes object in an event.
func kubernetesObject() object {
	return structure("Object", "A Kubernetes object. With finalstateunknown or truncated, only a part of it.", object{
		"apiVersion", object{"type", "string"},
		"kind", object{"type", "string"},
		"metadata", structure("Metadata", "The metadata of the object, without managedFields.", object{
			"name", object{"type", "string", "minLength", 1},
			"namespace", object{"type", "string", "minLength", 1},
			"uid", object{"type", "string", "minLength", 1},
			"resourceVersion", object{"type", "string"},
			"managedFields", false,
		}, "namespace", "resourceVersion", "managedFields"),
	}, "apiVersion", "kind")
}

// change returns the schema of the data with KUBERELAY_DATA=change.
func change(ref reference) object {
	return structure("Change", "The data of an event with KUBERELAY_DATA=change: the object, its previous state, and the JSON Patch between the two.", object{
		"object", object{"allOf", []object{ref("object")}, "description", "The object: the same as the data with KUBERELAY_DATA=object."},
		"previous", object{
			"description", "On io.kuberelay.object.updated, the object in the previous event, whose version is previousversion. Null on all other events, and if the object isn't known, or the event is too large or truncated.",
			"anyOf", nullOr(ref("object")),
		},
		"patch", object{
			"description", "A JSON Patch (RFC 6902) that turns previous into object. Null if previous is null.",
			"anyOf", nullOr(object{"type", "array", "items", ref("operation")}),
		},
	}).with("additionalProperties", false, "oneOf", []object{
		{"properties", object{"previous", object{"type", "null"}, "patch", object{"type", "null"}}},
		{"properties", object{"previous", object{"type", "object"}, "patch", object{"type", "array"}}},
	})
}

// operation returns the schema of an operation in a JSON Patch.
func operation() object {
	return structure("Operation", "An operation of a JSON Patch: add, remove, or replace.", object{
		"op", object{"enum", []string{"add", "remove", "replace"}},
		"path", object{"description", "A JSON Pointer (RFC 6901).", "type", "string", "pattern", "^(/|$)"},
		"value", true,
	}, "value").with("additionalProperties", false,
		"if", object{"properties", object{"op", object{"const", "remove"}}},
		"then", object{"properties", object{"value", false}},
		"else", object{"required", []string{"value"}},
	)
}

// markerData returns the schemas of the data of events that aren't about an object.
func markerData() object {
	group, resource := text("The group, empty for the core group."), text("The plural name of the resource.").with("minLength", 1)
	return object{
		"snapshotData", structure("Snapshot marker", "The first sync of a resource.", object{
			"group", group, "resource", resource, "count", count("The number of objects. 0 in the started marker."),
		}),
		"resolvedData", structure("Consistency point", "The version up to which the bus has every change of a resource.", object{
			"group", group, "resource", resource,
			"resourceVersion", text("Every change up to this version is on the bus.").with("minLength", 1),
			"asOf", moment("The time at which the watch had shown everything up to that version."),
			"objects", count("The number of selected objects that the watches showed when the forwarder created the point."),
		}),
		"claimData", structure("Claim", "The cluster that owns the cluster name.", object{
			"uid", text("The UID of the namespace kube-system, which identifies the cluster.").with("minLength", 1),
			"format", count("The number of the format that the forwarder writes. Absent in a claim of an earlier release."),
			"claimed", moment("The time of this claim."),
			"epoch", count("The first epoch that the events of the cluster can have.").with("maximum", event.LastEpoch),
			"replaces", text("The UID of the cluster that this one replaced."),
			"stream", text("On NATS, the creation time of the stream, which identifies the stream."),
			"settings", object{
				"description", "A digest of the value of each variable that decides what the bus holds. Absent in a claim of an earlier release.",
				"type", "object", "additionalProperties", text("A digest of the value.").with("pattern", "^[0-9a-f]{16}$"),
			},
			"forgotten", moment("The time at which forwarder forget deleted all objects of the cluster from the bus. Absent otherwise."),
		}, "format", "replaces", "stream", "settings", "forgotten"),
		"writerData", structure("Writer", "The forwarder that writes to a partition.", object{
			"writer", text("The name of the forwarder."), "topic", text("The topic.").with("minLength", 1), "partition", count("The partition."),
		}),
	}
}

// structured returns the schema of an event in the JSON format of CloudEvents.
func structured(t eventType, ref reference) object {
	members, names := object{}, []string{}
	for _, a := range slices.Concat(context, t.more) {
		members = members.with(a.name, merged(a.schema(false), t.fixed(a.name)))
	}
	for _, a := range context {
		names = append(names, a.name)
	}
	names = append(append(names, t.required...), "data")
	s := object{"title", t.title, "description", t.description, "type", "object", "required", names}
	if !t.isObject {
		return s.with("properties", members.with("data", ref(t.data)))
	}
	return s.with("properties", members,
		"if", object{"required", []string{"dataschema"}},
		"then", object{"properties", object{"data", ref("change")}},
		"else", object{"properties", object{"data", ref("object")}})
}

// merged returns a schema with the members of another one. They replace members with the same name.
func merged(schema, other object) object {
	result := slices.Clone(schema)
	for i := 0; i < len(other); i += 2 {
		at := 0
		for at < len(result) && result[at] != other[i] {
			at += 2
		}
		if at < len(result) {
			result[at+1] = other[i+1]
		} else {
			result = result.with(other[i], other[i+1])
		}
	}
	return result
}

// document returns a JSON Schema as a separate document.
func document(id string, schema, defs object) object {
	d := object{"$schema", draft, "$id", id}.with(schema...)
	if len(defs) > 0 {
		d = d.with("$defs", defs)
	}
	return d
}

func objectDocument() object { return document(schemaObject, kubernetesObject(), nil) }

func changeDocument() object {
	return document(event.SchemaChange, change(inDefs), object{"object", kubernetesObject(), "operation", operation()})
}

// eventDocument returns the schema of every event. It has a definition for each type of event.
func eventDocument() object {
	defs, anyOf := object{}, []object{}
	for _, t := range types {
		defs = defs.with(t.name, structured(t, inDefs))
		anyOf = append(anyOf, inDefs(t.name))
	}
	defs = defs.with(markerData()...).with("object", kubernetesObject(), "change", change(inDefs), "operation", operation())
	return document(schemaEvent, object{
		"title", "Event", "description", "An event in the JSON format of CloudEvents 1.0. A later release can add attributes.", "oneOf", anyOf,
	}, defs)
}
