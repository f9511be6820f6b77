package jsonschema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/event"
)

var things = event.Resource{Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true}

// documentOf returns an OpenAPI document in which the spec of a Thing has a schema.
func documentOf(spec string) []byte {
	return []byte(`{"components":{"schemas":{
		"com.example.v1.Thing":{"type":"object","required":["spec"],"x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Thing","version":"v1"}],
			"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"default":{},"allOf":[{"$ref":"#/components/schemas/ObjectMeta"}]},"spec":` + spec + `}},
		"com.example.v1.ThingList":{"type":"object","properties":{"items":{"type":"array","items":{"$ref":"#/components/schemas/com.example.v1.Thing"}}}},
		"ObjectMeta":{"type":"object","properties":{"name":{"type":"string"}}},
		"Tree":{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/components/schemas/Tree"}}}},
		"io.k8s.api.core.v1.Reference":` + reference + `,
		"io.k8s.networking.gateway.v1.Reference":` + reference + `,
		"Unused":{"type":"string"}}}}`)
}

// reference is the schema of a built-in type.
const reference = `{"type":"object","required":["kind","owner"],"properties":{"apiGroup":{"type":"string"},"kind":{"type":"string","default":""},
	"owner":{"$ref":"#/components/schemas/Tree"},"other":{"$ref":"#/components/schemas/Tree"},"meta":{"default":{},"allOf":[{"$ref":"#/components/schemas/Tree"}]},
	"metadata":{"$ref":"#/components/schemas/Tree"},"names":{"type":"array","items":{"type":"string"}}}}`

// TestNullsOfBuiltInTypes verifies that the optional fields of a built-in type accept null, but not
// its metadata, nor the fields of a custom resource in a group of Kubernetes.
func TestNullsOfBuiltInTypes(t *testing.T) {
	for name, want := range map[string]string{
		"io.k8s.api.core.v1.Reference": `{"type":"object","required":["kind","owner"],"properties":{"apiGroup":{"type":["string","null"]},"kind":{"type":"string"},
			"owner":{"$ref":"#/$defs/Tree"},"other":{"anyOf":[{"$ref":"#/$defs/Tree"},{"type":"null"}]},"meta":{"allOf":[{"$ref":"#/$defs/Tree"}]},
			"metadata":{"$ref":"#/$defs/Tree"},"names":{"type":["array","null"],"items":{"type":"string"}}}}`,
		"io.k8s.networking.gateway.v1.Reference": `{"type":"object","required":["kind","owner"],"properties":{"apiGroup":{"type":"string"},"kind":{"type":"string"},
			"owner":{"$ref":"#/$defs/Tree"},"other":{"$ref":"#/$defs/Tree"},"meta":{"allOf":[{"$ref":"#/$defs/Tree"}]},
			"metadata":{"$ref":"#/$defs/Tree"},"names":{"type":["array","null"],"items":{"type":"string"}}}}`,
	} {
		text, err := Of(documentOf(`{"$ref":"#/components/schemas/`+name+`"}`), things, event.DataObject)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Defs map[string]json.RawMessage `json:"$defs"`
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(canonical(t, want), canonical(t, string(got.Defs[name]))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestConvert(t *testing.T) {
	for _, tt := range []struct{ name, from, want string }{
		{"the same", `{"type":"string","minLength":1,"pattern":"^a","enum":["a"],"description":"d"}`, `{"type":"string","minLength":1,"pattern":"^a","enum":["a"],"description":"d"}`},
		{"default", `{"type":"object","default":{},"properties":{"default":{"type":"string","default":""}}}`, `{"type":"object","properties":{"default":{"type":"string"}}}`},
		{"extensions", `{"type":"string","x-kubernetes-validations":[{"rule":"true"}],"x-other":1}`, `{"type":"string"}`},
		{"a property with the name of a keyword", `{"type":"object","properties":{"nullable":{"type":"string"},"x-a":true}}`, `{"type":"object","properties":{"nullable":{"type":"string"},"x-a":true}}`},
		{"nullable", `{"type":"string","nullable":true}`, `{"type":["string","null"]}`},
		{"nullable enumeration", `{"type":"string","enum":["a"],"nullable":true}`, `{"anyOf":[{"type":"string","enum":["a"]},{"type":"null"}]}`},
		{"nullable reference", `{"$ref":"#/components/schemas/ObjectMeta","nullable":true}`, `{"anyOf":[{"$ref":"#/$defs/ObjectMeta"},{"type":"null"}]}`},
		{"not nullable", `{"type":"string","nullable":false}`, `{"type":"string"}`},
		{"list", `{"type":"array","items":{"type":"string","nullable":true}}`, `{"type":["array","null"],"items":{"type":["string","null"]}}`},
		{"map", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":["object","null"],"additionalProperties":{"type":"string"}}`},
		{"time", `{"type":"string","format":"date-time"}`, `{"type":["string","null"],"format":"date-time"}`},
		{"bytes", `{"type":"string","format":"byte"}`, `{"type":"string","contentEncoding":"base64"}`},
		{"format of Kubernetes", `{"type":"string","format":"duration"}`, `{"type":"string"}`},
		{"number or text", `{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"type":["integer","string"],"anyOf":[{"type":"integer"},{"type":"string"}]}`},
		{"bounds", `{"type":"integer","minimum":9007199254740993,"exclusiveMinimum":true,"maximum":5,"exclusiveMaximum":false}`, `{"type":"integer","exclusiveMinimum":9007199254740993,"maximum":5}`},
		{"example", `{"type":"integer","example":1,"externalDocs":{"url":"u"}}`, `{"type":"integer","examples":[1]}`},
		{"recursion", `{"allOf":[{"$ref":"#/components/schemas/Tree"}],"not":{"type":"string"}}`, `{"allOf":[{"$ref":"#/$defs/Tree"}],"not":{"type":"string"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := Of(documentOf(tt.from), things, event.DataObject)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Defs map[string]struct {
					Properties map[string]json.RawMessage `json:"properties"`
				} `json:"$defs"`
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(canonical(t, tt.want), canonical(t, string(got.Defs["com.example.v1.Thing"].Properties["spec"]))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for name, want := range map[string]bool{
				"ObjectMeta": true, "Unused": false, "com.example.v1.ThingList": false, "Tree": strings.Contains(tt.from, "Tree"),
			} {
				if _, ok := got.Defs[name]; ok != want {
					t.Errorf("the definition %s is there: %t, want %t", name, ok, want)
				}
			}
		})
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOf(t *testing.T) {
	const defs = `{"ObjectMeta":{"properties":{"name":{"type":"string"}},"type":"object"},"com.example.v1.Thing":{"properties":{` +
		`"apiVersion":{"const":"example.com/v1","type":"string"},"kind":{"const":"Thing","type":"string"},` +
		`"metadata":{"allOf":[{"$ref":"#/$defs/ObjectMeta"}],"required":["name","namespace","uid"]},"spec":{"type":"string"}},"required":["metadata"],"type":"object"}}`
	const head = `"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Thing","description":"The data of the events of things.example.com, example.com/v1.",`
	for form, want := range map[event.DataForm]string{
		event.DataObject: `{` + head + `"$ref":"#/$defs/com.example.v1.Thing","$defs":` + defs + `}`,
		event.DataChange: `{` + head + `"type":"object","required":["object","previous","patch"],"properties":{"object":{"$ref":"#/$defs/com.example.v1.Thing"},` +
			`"patch":{"description":"A JSON Patch (RFC 6902) that turns previous into object.","items":{"type":"object"},"type":["array","null"]},` +
			`"previous":{"anyOf":[{"$ref":"#/$defs/com.example.v1.Thing"},{"type":"null"}]}},"$defs":` + defs + `}`,
	} {
		got, err := Of(documentOf(`{"type":"string"}`), things, form)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(canonical(t, want), canonical(t, string(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", form, diff)
		}
	}
}

func TestOfRefuses(t *testing.T) {
	gadgets := things
	gadgets.Kind = "Gadget"
	for _, tt := range []struct {
		document string
		r        event.Resource
		want     string
	}{
		{"{", things, "decode the OpenAPI document of example.com/v1"},
		{"{}", things, "has no schema for kind Thing"},
		{string(documentOf("{}")), gadgets, "has no schema for kind Gadget"},
		{string(documentOf(`{"$ref":"#/components/schemas/Absent"}`)), things, "the document has no schema Absent"},
		{string(documentOf(`{"$ref":"https://example.com/s"}`)), things, "does not point to a schema in the document"},
		{string(documentOf(`{"properties":[]}`)), things, "properties must be an object, not a list"},
		{string(documentOf(`{"anyOf":{}}`)), things, "expected a list of schemas, not"},
	} {
		if got, err := Of([]byte(tt.document), tt.r, event.DataObject); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %s, %v; want %q", tt.document, got, err, tt.want)
		}
	}
}
