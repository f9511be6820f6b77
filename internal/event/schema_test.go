package event

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/schematest"
)

// everyMessage returns messages of every type, in each form of data.
func everyMessage(t *testing.T) map[string]*Message {
	t.Helper()
	all := map[string]*Message{}
	add := func(name string, m *Message, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = m
	}
	for _, tt := range changes {
		for _, b := range []Builder{builder, changeBuilder} {
			m, err := b.Message(tt.change)
			add(fmt.Sprintf("%s as %q", tt.name, b.Data), m, err)
		}
	}
	for _, typ := range []Type{SnapshotStarted, SnapshotCompleted} {
		m, err := builder.Marker(typ, pods, "01J5", 3, observed)
		add(string(typ), m, err)
	}
	m, err := builder.Resolved(Point{Resource: pods, Version: "12345", Objects: 7, AsOf: observed, Taken: observed})
	add("resolved of the core group", m, err)
	m, err = builder.Resolved(Point{Resource: deployments, Version: "v7-a", AsOf: observed, Taken: observed})
	add("resolved", m, err)
	m, err = builder.ClusterClaimed(Claim{UID: "6f1b", Claimed: observed})
	add("claimed", m, err)
	m, err = builder.ClusterClaimed(Claim{UID: "6f1b", Claimed: observed, Replaces: "8c2d", Epoch: LastEpoch, Stream: "2026-03-04T05:06:07Z"})
	add("claimed, replaces", m, err)
	m, err = builder.ClusterClaimed(Claim{UID: "6f1b", Claimed: observed, Settings: map[string]string{"KUBERELAY_FILTER": "0123ab5b2f9ce0a7"}, Forgotten: observed})
	add("claimed with settings, forgotten", m, err)
	m, err = builder.WriterStarted("forwarder-7d4b", "01j5", "kuberelay", 2, observed)
	add("writer started", m, err)
	return all
}

func structuredOf(t *testing.T, m *Message) []byte {
	t.Helper()
	text, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestEventSchema verifies that docs/schemas/event.v1.json describes every event, with all its
// attributes.
func TestEventSchema(t *testing.T) {
	schema, seen := schematest.Event(t), map[string]bool{}
	for name, m := range everyMessage(t) {
		seen[m.Attribute("type")] = true
		if err := schema.Validate(structuredOf(t, m)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, structuredOf(t, m))
		}
	}
	if len(seen) != 10 {
		t.Errorf("types %v", seen)
	}
}

// TestEventSchemaRefuses verifies that the schema refuses an event if an attribute is removed,
// unless the attribute is optional, or if the value of an attribute has another type.
func TestEventSchemaRefuses(t *testing.T) {
	schema := schematest.Event(t)
	optional := map[string]bool{
		"namespace": true, "dataschema": true, "previousversion": true, "changed": true, "digest": true, "group": true,
		"ownerkind": true, "ownername": true, "finalstateunknown": true, "truncated": true,
	}
	// A removal lacks these attributes if only the identity of the object is known.
	ofRemoval := map[string]bool{"apiversion": true, "kind": true, "resourceversion": true}
	for name, m := range everyMessage(t) {
		var whole map[string]any
		if err := json.Unmarshal(structuredOf(t, m), &whole); err != nil {
			t.Fatal(err)
		}
		for attribute, value := range whole {
			altered := map[string]any{}
			refused := func() bool {
				text, err := json.Marshal(altered)
				if err != nil {
					t.Fatal(err)
				}
				return schema.Validate(text) != nil
			}
			for other, v := range whole {
				altered[other] = v
			}
			altered[attribute] = 7
			if !refused() {
				t.Errorf("%s: %s can be a number", name, attribute)
			}
			delete(altered, attribute)
			may := optional[attribute] || Type(m.Attribute("type")).IsRemoval() && ofRemoval[attribute]
			if attribute == "dataschema" { // the data is still a change
				may = false
			}
			if refused() == may {
				t.Errorf("%s: the schema allows the event without %s: %t, want %t (%v)", name, attribute, !may, may, value)
			}
			altered[attribute], altered["unknown"] = value, "x"
			if !refused() {
				t.Fatalf("%s: the schema accepts unknown attributes, so this test can't find one that the schema lacks", name)
			}
		}
	}
}

// TestDataSchema verifies that the schemas accept the data of every event, and refuse data without
// the UID, in both forms.
func TestDataSchema(t *testing.T) {
	for name, b := range map[string]Builder{"object.v1.json": builder, "change.v1.json": changeBuilder} {
		schema := schematest.Data(t, name)
		for _, tt := range changes {
			m, err := b.Message(tt.change)
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(m.Data); err != nil {
				t.Errorf("%s, %s: %v\n%s", name, tt.name, err, m.Data)
			}
			var data map[string]any
			if err := json.Unmarshal(m.Data, &data); err != nil {
				t.Fatal(err)
			}
			object := data
			if b.Data == DataChange {
				object = data["object"].(map[string]any)
			}
			for _, member := range []string{"uid", "name"} {
				metadata := object["metadata"].(map[string]any)
				value := metadata[member]
				delete(metadata, member)
				if schema.ValidateValue(data) == nil {
					t.Errorf("%s, %s: accepted without %s", name, tt.name, member)
				}
				metadata[member] = value
			}
		}
	}
}

func TestChangeSchemaRefuses(t *testing.T) {
	schema := schematest.Data(t, "change.v1.json")
	m, err := changeBuilder.Message(change(deployments, "default", "web", before(threeReplicas.Replace)))
	if err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(d map[string]any){
		"no object":            func(d map[string]any) { delete(d, "object") },
		"object is null":       func(d map[string]any) { d["object"] = nil },
		"no previous":          func(d map[string]any) { delete(d, "previous") },
		"no patch":             func(d map[string]any) { delete(d, "patch") },
		"patch alone":          func(d map[string]any) { d["previous"] = nil },
		"previous alone":       func(d map[string]any) { d["patch"] = nil },
		"more":                 func(d map[string]any) { d["more"] = 1 },
		"a test":               func(d map[string]any) { d["patch"] = []any{map[string]any{"op": "test", "path": "/a", "value": 1}} },
		"add without value":    func(d map[string]any) { d["patch"] = []any{map[string]any{"op": "add", "path": "/a"}} },
		"remove with a value":  func(d map[string]any) { d["patch"] = []any{map[string]any{"op": "remove", "path": "/a", "value": 1}} },
		"a path without slash": func(d map[string]any) { d["patch"] = []any{map[string]any{"op": "remove", "path": "a"}} },
		"the bare object":      func(d map[string]any) { clear(d); d["metadata"] = map[string]any{"name": "web", "uid": "6f1b"} },
	} {
		var d map[string]any
		if err := json.Unmarshal(m.Data, &d); err != nil {
			t.Fatal(err)
		}
		alter(d)
		if schema.ValidateValue(d) == nil {
			t.Errorf("%s: the schema accepts %v", name, d)
		}
	}
}
