package main

import (
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

func inComponents(name string) object { return object{"$ref", "#/components/schemas/" + name} }

const (
	nats  = "nats"
	kafka = "kafka"
)

// asyncAPI returns the AsyncAPI document for the events that the forwarder publishes. It describes the
// events on NATS and on Kafka, in binary and in structured mode.
func asyncAPI() object {
	channels, operations, messages := object{}, object{}, object{}
	for _, c := range allChannels() {
		refs, here := object{}, []object{}
		for _, m := range c.messages {
			messages = messages.with(m.name, m.content)
			refs = refs.with(m.name, object{"$ref", "#/components/messages/" + m.name})
			here = append(here, object{"$ref", "#/channels/" + c.name + "/messages/" + m.name})
		}
		channel := object{"$ref", "#/channels/" + c.name}
		channels = channels.with(c.name, object{
			"address", c.address, "title", c.title, "description", c.description,
			"servers", []object{{"$ref", "#/servers/" + c.server}},
			"parameters", c.parameters, "messages", refs,
		})
		operations = operations.with("publish"+strings.ToUpper(c.name[:1])+c.name[1:], object{
			"action", "send", "channel", channel, "title", "Publish: " + c.title, "messages", here,
		})
	}
	return object{
		"asyncapi", "3.0.0",
		"info", object{
			"title", "Kuberelay", "version", "1.0.0",
			"description", "The changes of Kubernetes objects that the forwarder publishes, as CloudEvents 1.0. This document describes every type of event for both buses and " +
				"both content modes. A forwarder uses one bus (KUBERELAY_SINK) and one mode (KUBERELAY_CONTENT_MODE). On NATS, values of headers are percent-encoded, as " +
				"the CloudEvents NATS binding requires. docs/events.md explains the events.",
			"license", object{"name", "Apache 2.0", "url", "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		"defaultContentType", "application/json",
		"servers", object{
			nats, object{"host", "nats.example.com:4222", "protocol", "nats", "description", "NATS with JetStream. The stream is KUBERELAY_NATS_STREAM."},
			kafka, object{"host", "kafka.example.com:9092", "protocol", "kafka", "description", "Kafka. The brokers are KUBERELAY_KAFKA_BROKERS."},
		},
		"channels", channels,
		"operations", operations,
		"components", object{"messages", messages, "schemas", componentSchemas()},
	}
}

type channel struct {
	name, server, address, title, description string

	parameters object
	messages   []message
}

type message struct {
	name    string
	content object
}

// allChannels returns the channels for the subjects on NATS and for the topic on Kafka.
func allChannels() []channel {
	parameter := func(description string) object { return object{"description", description} }
	prefix := object{
		"prefix", object{"description", "KUBERELAY_NATS_SUBJECT_PREFIX.", "default", "kuberelay"},
		"cluster", parameter("The name of the cluster. A byte outside of A-Z a-z 0-9 _ - is written =XX in upper-case hex."),
	}
	resource := prefix.with(
		"group", parameter("The group, with _ instead of each dot, or core for the core group."),
		"resource", parameter("The plural name of the resource, escaped in the same way as the cluster."))
	channels := []channel{
		{
			name: "objectsOnNATS", server: nats, address: "{prefix}.{cluster}.{group}.{resource}.{namespace}.{name}", title: "Objects",
			description: "The events of an object. The last message of the subject is the current state.",
			parameters: resource.with(
				"namespace", parameter("The namespace, escaped in the same way as the cluster, or _ for a cluster-scoped object."),
				"name", parameter("The name of the object, escaped in the same way as the cluster.")),
			messages: messagesOf(nats, func(t eventType) bool { return t.isObject }),
		},
		{
			name: "snapshotsOnNATS", server: nats, address: "{prefix}.{cluster}._control.snapshot.{group}.{resource}", title: "Snapshot markers",
			description: "The start and the end of the first sync of a resource.", parameters: resource,
			messages: messagesOf(nats, func(t eventType) bool { return t.data == "snapshotData" }),
		},
		{
			name: "pointsOnNATS", server: nats, address: "{prefix}.{cluster}._control.resolved.{group}.{resource}", title: "Consistency points",
			description: "The versions up to which the bus has every change of a resource.", parameters: resource,
			messages: messagesOf(nats, func(t eventType) bool { return t.typ == event.Resolved }),
		},
		{
			name: "claimOnNATS", server: nats, address: "{prefix}.{cluster}._control.cluster._.claimed", title: "Claim",
			description: "Which cluster owns the cluster name.", parameters: prefix,
			messages: messagesOf(nats, func(t eventType) bool { return t.typ == event.ClusterClaimed }),
		},
	}
	return append(channels, channel{
		name: "eventsOnKafka", server: kafka, address: "{topic}", title: "Events",
		description: "All events. The key of a record is the attribute partitionkey, and the partition is the one that Java's default partitioner chooses for it. " +
			"The last record of a key is the current state of its object. Markers and consistency points have no value, so a table that is built from the topic has no rows for them.",
		parameters: object{"topic", object{
			"default", "kuberelay", "examples", []string{"kuberelay", "kuberelay.apps.deployments"},
			"description", "The topic in KUBERELAY_KAFKA_TOPIC. If that is a template, such as kuberelay.{group}.{resource}, each resource has its own topic.",
		}},
		messages: append(messagesOf(kafka, func(eventType) bool { return true }), tombstone()),
	})
}

// messagesOf returns the messages on a bus for the event types that want selects, in both content modes.
func messagesOf(bus string, want func(eventType) bool) []message {
	var all []message
	for _, t := range types {
		if !want(t) {
			continue
		}
		payload := object{"oneOf", []object{inComponents("object"), inComponents("change")}}
		if !t.isObject {
			payload = inComponents(t.data)
		}
		if bus == kafka && !t.isObject { // the record has no value in either mode
			all = append(all, message{name(t, bus, ""), content(t, bus, "application/json", t.controlHeaders(), object{"type", "null"})})
			continue
		}
		all = append(all,
			message{name(t, bus, ""), content(t, bus, "application/json", t.headers(bus), payload)},
			message{name(t, bus, "Structured"), content(t, bus, event.ContentTypeStructured, inComponents(bus+"StructuredHeaders"), inComponents(t.name))})
	}
	return all
}

// controlHeaders returns the schema of the headers of a marker's record on Kafka. The record has no value,
// so a header has the data. A consistency point has its data only in attributes.
func (t eventType) controlHeaders() object {
	all := t.headers(kafka)
	if t.typ == event.Resolved {
		return all
	}
	const name = "kuberelay_data"
	data := object{"description", "The data of the event.", "type", "string", "contentMediaType", "application/json", "contentSchema", inComponents(t.data)}
	return object{"allOf", []object{all, {"type", "object", "required", []string{name}, "properties", object{name, data}}}}
}

// headers returns the schema of the headers of an event of this type in binary mode.
func (t eventType) headers(bus string) object {
	shared, own := inComponents(bus+"MarkerHeaders"), t.more
	if t.isObject {
		shared, own = inComponents(bus+"ObjectHeaders"), nil
	}
	members, names := object{}, []string{}
	for _, a := range context {
		if fixed := t.fixed(a.name); fixed != nil {
			members = members.with(header(bus, a.name), fixed)
		}
	}
	for _, a := range own {
		members = members.with(header(bus, a.name), a.schema(true))
	}
	for _, name := range append([]string{"type"}, t.required...) {
		names = append(names, header(bus, name))
	}
	return object{"allOf", []object{shared, {"type", "object", "required", names, "properties", members}}}
}

// name returns the name of a message, such as createdOnNATSStructured.
func name(t eventType, bus, mode string) string {
	return t.name + map[string]string{nats: "OnNATS", kafka: "OnKafka"}[bus] + mode
}

func content(t eventType, bus, contentType string, headers, payload object) object {
	m := object{
		"name", t.typ, "title", t.title, "summary", t.description, "contentType", contentType,
		"headers", headers, "payload", payload,
	}
	if bus == kafka {
		key := object{"type", "string", "description", "The attribute partitionkey.", "pattern", "^[^/]+(/[^/]+){4}$"}
		m = m.with("bindings", object{kafka, object{"key", merged(key, t.fixed("partitionkey")), "bindingVersion", "0.5.0"}})
	}
	return m
}

// header returns the name of the header that has an attribute in binary mode.
func header(bus, attribute string) string {
	switch {
	case bus == nats:
		return "ce-" + attribute
	case attribute == "datacontenttype":
		return "content-type"
	}
	return "ce_" + attribute
}

// headers returns the schema of a message's headers. It has a required header for each attribute of every
// event, and an optional header for each attribute in more.
func headers(bus, description string, more ...attribute) object {
	members, names := object{}, []string{}
	for _, a := range context {
		names = append(names, header(bus, a.name))
	}
	for _, a := range slices.Concat(context, more) {
		members = members.with(header(bus, a.name), a.schema(true))
	}
	if bus == nats {
		members = members.with(onNATS...)
	}
	return object{"description", description, "type", "object", "required", names, "properties", members}
}

// onNATS has the schemas of the headers on NATS that aren't attributes.
var onNATS = object{
	"KV-Operation", object{"description", "On deleted and deselected events, and on events that aren't about an object. In a key-value bucket that copies the stream, only existing objects then have keys.", "const", "DEL"},
	"Nats-Expected-Last-Subject-Sequence", object{"description", "The stream sequence number of the previous message of the subject, or 0. The server accepted this message only because the number was current.", "type", "string", "pattern", "^[0-9]+$"},
}

// repeated returns the schemas of headers that repeat attributes under another prefix.
func repeated(prefix string, names ...string) object {
	var members object
	for _, a := range slices.Concat(context, ofObject) {
		if slices.Contains(names, a.name) {
			members = members.with(prefix+a.name, a.schema(true))
		}
	}
	return members
}

func componentSchemas() object {
	contentType := object{"content-type", object{"const", event.ContentTypeStructured}}
	state := repeated("kuberelay-", "id", "type", "uid", "resourceversion", "sequence", "digest", "time")
	structuredHeaders := func(members object) object {
		return object{"type", "object", "required", []string{"content-type"}, "properties", members}
	}
	all := object{
		"natsObjectHeaders", headers(nats, "The attributes of an object's event.", ofObject...),
		"natsMarkerHeaders", headers(nats, "The attributes of every event."),
		"natsStructuredHeaders", structuredHeaders(contentType.with(state...).with(onNATS...)),
		"kafkaObjectHeaders", headers(kafka, "The attributes of an object's event.", ofObject...),
		"kafkaMarkerHeaders", headers(kafka, "The attributes of every event."),
		"kafkaStructuredHeaders", structuredHeaders(contentType),
		"object", kubernetesObject(), "change", change(inComponents), "operation", operation(),
	}
	all = all.with(markerData()...)
	for _, t := range types {
		all = all.with(t.name, structured(t, inComponents))
	}
	return all
}

// tombstone returns the message for the record without a value that follows a delete.
func tombstone() message {
	return message{"tombstoneOnKafka", object{
		"name", "tombstone", "title", "Tombstone", "contentType", "application/json",
		"summary", "A record without a value. It follows a deleted or deselected event and has the same key, so that a table drops the row. It is not a CloudEvent. " +
			"The headers repeat attributes of the event.",
		"headers", object{"type", "object", "properties", repeated("kuberelay_", "type", "uid", "resourceversion", "sequence", "digest", "time")},
		"payload", object{"type", "null"},
		"bindings", object{kafka, object{"key", object{"type", "string", "pattern", "^[^/]+(/[^/]+){4}$"}, "bindingVersion", "0.5.0"}},
	}}
}
