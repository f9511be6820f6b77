package main

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kubernetes returns a value of a Kubernetes type. preset is its default. The schema follows the Go type
// and is as strict as that type.
func kubernetes[T any](name string, preset any, description string) value {
	t := reflect.TypeFor[T]()
	kind := t.Name()
	of := t
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
		kind = of.Name()
	}
	if of.Kind() == reflect.Slice {
		kind = "list of " + of.Elem().Name()
	}
	return value{name: name, description: description, preset: preset, form: object{"type": t}, kind: kind}
}

// writeSchema writes the JSON schema in draft 7, which every version of Helm 3 supports. Only maps, such
// as labels, allow additional properties.
func writeSchema(w io.Writer, chart []value) error {
	d := definitions{}
	root := d.section(chart)
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart kuberelay"
	root["definitions"] = map[string]any(d)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(root)
}

// definitions are the schemas of the Kubernetes types, by name.
type definitions map[string]any

func (d definitions) section(values []value) object {
	properties := object{}
	for _, v := range values {
		of := object{}
		switch {
		case v.values != nil:
			of = d.section(v.values)
		default:
			for k, x := range v.form {
				of[k] = x
			}
			if t, ok := of["type"].(reflect.Type); ok {
				of = d.of(t)
			}
		}
		if _, isReference := of["$ref"]; isReference {
			of = object{"allOf": []any{of}} // draft 7 ignores the siblings of a reference
		}
		of["description"] = v.description
		properties[v.name] = of
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties}
}

func (d definitions) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return object{"type": []string{"string", "number"}}
	case reflect.TypeFor[intstr.IntOrString]():
		return object{"type": []string{"integer", "string"}}
	case reflect.TypeFor[*intstr.IntOrString]():
		return object{"type": []string{"integer", "string", "null"}}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[[]byte]():
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		of := d.of(t.Elem())
		if t.Elem().Kind() == reflect.Slice { // null differs from an empty list
			of["type"] = []string{"array", "null"}
		}
		return of
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Slice:
		return object{"type": "array", "items": d.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.of(t.Elem())}
	case reflect.Struct:
		return d.reference(t)
	default:
		panic("no schema for " + t.String())
	}
}

func (d definitions) reference(t reflect.Type) object {
	name := strings.NewReplacer("k8s.io/", "", "/", ".").Replace(t.PkgPath()) + "." + t.Name()
	if _, ok := d[name]; !ok {
		d[name] = nil // the type may refer to itself
		properties := object{}
		required := d.fields(t, properties)
		definition := object{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			definition["required"] = required
		}
		d[name] = definition
	}
	return object{"$ref": "#/definitions/" + name}
}

// fields adds the properties of a struct, and returns the names of the required properties.
func (d definitions) fields(t reflect.Type, properties object) (required []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch name {
		case "-":
		case "":
			required = append(required, d.fields(f.Type, properties)...)
		default:
			properties[name] = d.of(f.Type)
			if !strings.Contains(options, "omit") {
				required = append(required, name)
			}
		}
	}
	return required
}
