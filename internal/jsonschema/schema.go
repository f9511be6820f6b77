// Package jsonschema makes a JSON Schema for the event data of a resource. It uses the OpenAPI v3
// document that the API server serves for the resource's group and version.
//
// Guarantees:
//
//   - The schema is self-contained: it has every definition that it refers to, and no other.
//   - It accepts the data of every event of the resource in that version, including truncated
//     events and events with an unknown final state. Therefore fields that the API server requires
//     at the top of an object, such as spec, are optional. In metadata, the schema requires name,
//     uid, and, for a namespaced resource, namespace.
//
// Limits:
//
//   - It describes fields as the API server serves them. In events, a hashed field is a string and
//     a dropped field is missing, whatever the schema says.
//   - It is as loose as the OpenAPI document. It accepts unknown fields, and leaves out the CEL
//     rules in x-kubernetes-validations.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuberelay/kuberelay/internal/event"
)

// draft identifies the version of JSON Schema.
const draft = "https://json-schema.org/draft/2020-12/schema"

// document is a JSON Schema. Its members are in the order in which people read them.
type document struct {
	Schema      string            `json:"$schema"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Ref         string            `json:"$ref,omitempty"`
	Type        string            `json:"type,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Properties  map[string]schema `json:"properties,omitempty"`
	Defs        map[string]schema `json:"$defs"`
}

// schema is a JSON Schema or an OpenAPI schema object.
type schema = map[string]any

// Of returns the schema of r's event data as indented JSON. openAPI is the OpenAPI v3 document of
// r's group and version.
func Of(openAPI []byte, r event.Resource, form event.DataForm) ([]byte, error) {
	c := converter{defs: map[string]schema{}}
	d := json.NewDecoder(bytes.NewReader(openAPI))
	d.UseNumber()
	var from struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := d.Decode(&from); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI document of %s: %w", r.APIVersion(), err)
	}
	c.schemas = from.Components.Schemas
	name := c.find(r)
	if name == "" {
		return nil, fmt.Errorf("the OpenAPI document of %s has no schema for kind %s", r.APIVersion(), r.Kind)
	}
	if err := c.addObject(name, r); err != nil {
		return nil, fmt.Errorf("convert the OpenAPI schema of %s: %w", r.Kind, err)
	}
	ref := defsPrefix + name
	result := document{Schema: draft, Title: r.Kind, Description: fmt.Sprintf("The data of the events of %s, %s.", r.GroupResource(), r.APIVersion()), Ref: ref, Defs: c.defs}
	if form == event.DataChange {
		result.Ref, result.Type, result.Required = "", "object", []string{"object", "previous", "patch"}
		result.Properties = map[string]schema{
			"object":   {"$ref": ref},
			"previous": {"anyOf": []any{schema{"$ref": ref}, schema{"type": "null"}}},
			"patch":    {"type": []string{"array", "null"}, "items": schema{"type": "object"}, "description": "A JSON Patch (RFC 6902) that turns previous into object."},
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(result)
	return b.Bytes(), err
}

const groupVersionKind = "x-kubernetes-group-version-kind"

// find returns the name of the schema of a kind, or "".
func (c *converter) find(r event.Resource) string {
	for _, name := range slices.Sorted(maps.Keys(c.schemas)) {
		kinds, _ := c.schemas[name][groupVersionKind].([]any)
		for _, kind := range kinds {
			k, _ := kind.(schema)
			if k["group"] == r.Group && k["version"] == r.Version && k["kind"] == r.Kind {
				return name
			}
		}
	}
	return ""
}

// objectMeta is the suffix of the name of the metadata schema.
const objectMeta = ".apis.meta.v1.ObjectMeta"

// addObject adds the definition of r's objects, and the definitions that it refers to.
func (c *converter) addObject(name string, r event.Resource) error {
	for schemaName, s := range c.schemas {
		if properties, _ := s["properties"].(schema); strings.HasSuffix(schemaName, objectMeta) {
			delete(properties, "managedFields") // not published
		}
	}
	if err := c.addDefinition(name); err != nil {
		return err
	}
	object := c.defs[name]
	properties, _ := object["properties"].(schema)
	if properties == nil {
		properties = schema{}
		object["properties"] = properties
	}
	for field, value := range map[string]string{"apiVersion": r.APIVersion(), "kind": r.Kind} {
		properties[field] = schema{"type": "string", "const": value}
	}
	metadata, _ := properties["metadata"].(schema)
	if metadata == nil {
		metadata = schema{"type": "object"}
		properties["metadata"] = metadata
	}
	metadata["required"] = []string{"name", "uid"}
	if r.Namespaced {
		metadata["required"] = []string{"name", "namespace", "uid"}
	}
	object["required"] = []string{"metadata"}
	return nil
}
