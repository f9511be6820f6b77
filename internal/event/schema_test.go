package event

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// changeSchema is what docs/events.md points to.
func changeSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/schemas/change.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if id := document.(map[string]any)["$id"]; id != SchemaChange {
		t.Errorf("the schema is called %v, events name %s", id, SchemaChange)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(SchemaChange, document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(SchemaChange)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validate(t *testing.T, s *jsonschema.Schema, data []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestChangeSchema(t *testing.T) {
	s := changeSchema(t)
	for _, tt := range changes {
		m, err := changeBuilder.Message(tt.change)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, m.Data); err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, m.Data)
		}
	}
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
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, s, data) == nil {
			t.Errorf("%s: the schema takes %s", name, data)
		}
	}
}
