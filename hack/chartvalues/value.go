package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kuberelay/kuberelay/internal/config"
)

// A value is a value of the chart. It is either a section, which has other values, or a leaf.
type value struct {
	name, description string
	brief             string  // replaces the description in the README, if set
	values            []value // values of a section; for a file, its parts

	// Fields of a leaf:
	preset any    // the default
	form   object // its JSON schema, without the description
	kind   string // the type in the documentation
}

// object is a JSON object.
type object = map[string]any

func section(name, description string, of ...value) value {
	return value{name: name, description: description, values: of}
}

func text(name, preset, description string) value {
	return value{name: name, description: description, preset: preset, form: object{"type": "string"}, kind: "text"}
}

func choice(name, preset, description string, of ...string) value {
	return value{name: name, description: description, preset: preset, form: object{"type": "string", "enum": of}, kind: alternatives(of)}
}

func boolean(name string, preset bool, description string) value {
	return value{name: name, description: description, preset: preset, form: object{"type": "boolean"}, kind: "true or false"}
}

// number returns a positive integer.
func number(name string, preset, maximum int, description string) value {
	return value{
		name: name, description: description, preset: preset, kind: "number",
		form: object{"type": "integer", "minimum": 1, "maximum": maximum},
	}
}

// texts returns a map of strings, such as labels.
func texts(name, description string) value {
	return value{
		name: name, description: description, preset: object{}, kind: "map",
		form: object{"type": "object", "additionalProperties": object{"type": "string"}},
	}
}

func list(name, description, pattern string) value {
	items := object{"type": "string"}
	if pattern != "" {
		items["pattern"] = pattern
	}
	return value{
		name: name, description: description, preset: []any{}, kind: "list",
		form: listForm(items),
	}
}

// listForm returns the schema of a list of strings. A single string is also allowed.
func listForm(items object) object {
	form := maps.Clone(items)
	form["type"], form["items"] = []string{"array", "string"}, items
	return form
}

func alternatives(of []string) string {
	of = slices.Clone(of)
	for i, s := range of {
		of[i] = cmp.Or(s, "nothing")
	}
	return config.Alternatives(of)
}
