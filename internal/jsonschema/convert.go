package jsonschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	componentsPrefix = "#/components/schemas/"
	defsPrefix       = "#/$defs/"
)

// converter converts the schemas of an OpenAPI v3.0 document, which are not quite JSON Schemas.
type converter struct {
	schemas map[string]schema // schemas of the document
	defs    map[string]schema // converted
}

// addDefinition converts the named schema and the schemas that it refers to.
func (c *converter) addDefinition(name string) error {
	if c.defs[name] != nil {
		return nil
	}
	s, ok := c.schemas[name]
	if !ok {
		return fmt.Errorf("the document has no schema %s", name)
	}
	c.defs[name] = schema{} // ends the recursion of a schema that refers to itself
	converted, err := c.convert(s)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(builtIn, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		acceptNulls(s, converted)
	}
	c.defs[name] = converted
	return nil
}

// builtIn lists the prefixes of the names of built-in types. A custom resource in a group such as
// gateway.networking.k8s.io has another name below io.k8s.
var builtIn = []string{"io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.kube-aggregator.", "io.k8s.apiextensions-apiserver."}

// acceptNulls makes the optional properties of a built-in type accept null. The API server writes
// null for some of them instead of leaving them out, for example for the apiGroup of a volume's
// data source. The document doesn't say which ones. A property with a default is never null, and
// neither is the metadata of an object.
func acceptNulls(from, to schema) {
	required, _ := from["required"].([]any)
	properties, _ := from["properties"].(schema)
	for name, property := range properties {
		p, ok := property.(schema)
		if ok && name != "metadata" && p["default"] == nil && !slices.Contains(required, any(name)) {
			converted := to["properties"].(schema)
			converted[name] = orNull(converted[name].(schema))
		}
	}
}

// formats lists the formats that the converted schema keeps: those with the same meaning in
// Kubernetes and JSON Schema, and number formats, which code generators use. Other formats have a
// different meaning. In Kubernetes, for example, a duration is 1h30m, and a uri can be a path.
var formats = []string{"date-time", "date", "int32", "int64", "float", "double", "ipv4", "ipv6", "uuid"}

// convert converts a schema. A keyword that the switch doesn't name has the same meaning in OpenAPI
// and JSON Schema, or is an extension that convert removes.
func (c *converter) convert(from schema) (schema, error) {
	to := schema{}
	for keyword, value := range from {
		var err error
		switch keyword {
		case "$ref":
			name, ok := strings.CutPrefix(fmt.Sprint(value), componentsPrefix)
			if !ok {
				return nil, fmt.Errorf("the reference %v does not point to a schema in the document", value)
			}
			to[keyword] = defsPrefix + name
			err = c.addDefinition(name)
		case "properties":
			to[keyword], err = c.convertMembers(value)
		case "items", "additionalProperties", "not":
			to[keyword], err = c.convertValue(value)
		case "allOf", "anyOf", "oneOf":
			to[keyword], err = c.convertList(value)
		case "format":
			if value == "byte" {
				to["contentEncoding"] = "base64"
			} else if format, _ := value.(string); slices.Contains(formats, format) {
				to[keyword] = value
			}
		case "example":
			to["examples"] = []any{value}
		case "minimum", "maximum":
			if from["exclusiveM"+keyword[1:]] != true {
				to[keyword] = value
			}
		case "exclusiveMinimum", "exclusiveMaximum":
			if limit, ok := from["m"+keyword[len("exclusiveM"):]]; ok && value == true {
				to[keyword] = limit
			}
		case "nullable", "discriminator", "xml", "externalDocs":
		case "default": // an event that lacks the field does not have its default value
		default:
			if !strings.HasPrefix(keyword, "x-") {
				to[keyword] = value
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if from["x-kubernetes-int-or-string"] == true && to["type"] == nil {
		to["type"] = []any{"integer", "string"}
	}
	if from["nullable"] == true || isNullIfEmpty(from) {
		return orNull(to), nil
	}
	return to, nil
}

// isNullIfEmpty reports whether the API server can write null in place of an empty value. A list, a
// map, or a time of a built-in type can be null, whatever its schema says. For example, the rules
// of a ClusterRole can be null.
func isNullIfEmpty(s schema) bool {
	switch s["type"] {
	case "array":
		return true
	case "object":
		return s["properties"] == nil
	}
	return s["format"] == "date-time"
}

// orNull returns a schema that also accepts null.
func orNull(s schema) schema {
	typ, isText := s["type"].(string)
	if types, _ := s["type"].([]any); slices.Contains(types, any("null")) {
		return s
	}
	limiting := []string{"$ref", "allOf", "anyOf", "oneOf", "not", "enum"} // these keywords can reject null, whatever the type says
	if !isText || slices.ContainsFunc(limiting, func(keyword string) bool { return s[keyword] != nil }) {
		return schema{"anyOf": []any{s, schema{"type": "null"}}}
	}
	s["type"] = []any{typ, "null"}
	return s
}

func (c *converter) convertValue(value any) (any, error) {
	if s, ok := value.(schema); ok {
		return c.convert(s)
	}
	return value, nil // true or false
}

func (c *converter) convertMembers(value any) (schema, error) {
	members, ok := value.(schema)
	if !ok {
		return nil, fmt.Errorf("properties must be an object, not %s", kindOf(value))
	}
	converted := schema{}
	for name, member := range members {
		var err error
		if converted[name], err = c.convertValue(member); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

func (c *converter) convertList(value any) ([]any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("expected a list of schemas, not %s", kindOf(value))
	}
	converted := make([]any, len(list))
	for i, s := range list {
		var err error
		if converted[i], err = c.convertValue(s); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", value)
}
