package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const directory = "../../docs/schemas"

// asyncAPIDocument returns the AsyncAPI document as a JSON value.
func asyncAPIDocument(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory, "asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// asyncAPISchema is the schema of AsyncAPI 3.0.0 documents. testdata/asyncapi-3.0.0.json is
// schemas/3.0.0.json of the npm package @asyncapi/specs 6.11.1, without white space:
// https://github.com/asyncapi/spec-json-schemas. Its license is Apache-2.0, copyright The
// AsyncAPI Initiative and its contributors.
func asyncAPISchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("testdata/asyncapi-3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestAsyncAPIDocument(t *testing.T) {
	schema, document := asyncAPISchema(t), asyncAPIDocument(t)
	if err := schema.Validate(document); err != nil {
		t.Fatalf("%#v", err)
	}
	if n := checkReferences(t, document, document, "#"); n < 100 {
		t.Errorf("%d references", n)
	}
	components := document["components"].(map[string]any)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // AsyncAPI schemas use draft 7
	if err := compiler.AddResource("asyncapi.yaml", document); err != nil {
		t.Fatal(err)
	}
	for name := range components["schemas"].(map[string]any) {
		if _, err := compiler.Compile("asyncapi.yaml#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range components["messages"].(map[string]any) {
		for _, part := range []string{"headers", "payload"} {
			if m.(map[string]any)[part] == nil {
				t.Errorf("%s has no %s", name, part)
			}
			if _, err := compiler.Compile("asyncapi.yaml#/components/messages/" + name + "/" + part); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestAsyncAPISchemaRefuses verifies that the schema of AsyncAPI documents rejects mistakes.
func TestAsyncAPISchemaRefuses(t *testing.T) {
	schema := asyncAPISchema(t)
	for name, alter := range map[string]func(document map[string]any){
		"no version":      func(d map[string]any) { delete(d, "asyncapi") },
		"no info":         func(d map[string]any) { delete(d, "info") },
		"unknown member":  func(d map[string]any) { d["topics"] = map[string]any{} },
		"unknown action":  func(d map[string]any) { operationOf(d)["action"] = "publish" },
		"no channel":      func(d map[string]any) { delete(operationOf(d), "channel") },
		"address is list": func(d map[string]any) { channelOf(d)["address"] = []any{"a"} },
	} {
		document := asyncAPIDocument(t)
		alter(document)
		if schema.Validate(document) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func operationOf(d map[string]any) map[string]any {
	return d["operations"].(map[string]any)["publishObjectsOnNATS"].(map[string]any)
}

func channelOf(d map[string]any) map[string]any {
	return d["channels"].(map[string]any)["objectsOnNATS"].(map[string]any)
}

// checkReferences checks that the target of every reference in a part of the document exists. It returns
// the number of references.
func checkReferences(t *testing.T, document, part any, path string) (n int) {
	t.Helper()
	switch part := part.(type) {
	case map[string]any:
		if ref, ok := part["$ref"].(string); ok {
			n++
			if resolve(document, ref) == nil {
				t.Errorf("%s: %s does not exist", path, ref)
			}
		}
		for name, value := range part {
			n += checkReferences(t, document, value, path+"/"+name)
		}
	case []any:
		for i, value := range part {
			n += checkReferences(t, document, value, fmt.Sprint(path, "/", i))
		}
	}
	return n
}

func resolve(document any, ref string) any {
	path, local := strings.CutPrefix(ref, "#/")
	for _, name := range strings.Split(path, "/") {
		members, ok := document.(map[string]any)
		if !ok || !local {
			return nil
		}
		document = members[name]
	}
	return document
}

// TestDocumented verifies that docs/events.md names every type and every attribute.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types {
		if !strings.Contains(string(page), "`"+string(typ.typ)+"`") {
			t.Errorf("docs/events.md does not name the type %s", typ.typ)
		}
		for _, a := range slices.Concat(context, typ.more) {
			if !strings.Contains(string(page), "`"+a.name+"`") {
				t.Errorf("docs/events.md does not name the attribute %s", a.name)
			}
		}
	}
}

// TestParametersOfAddresses verifies that each channel has all parameters of its address, and no others.
func TestParametersOfAddresses(t *testing.T) {
	for name, c := range asyncAPIDocument(t)["channels"].(map[string]any) {
		var want, got []string
		for part := range strings.SplitSeq(c.(map[string]any)["address"].(string), "{") {
			if parameter, _, ok := strings.Cut(part, "}"); ok {
				want = append(want, parameter)
			}
		}
		for parameter := range c.(map[string]any)["parameters"].(map[string]any) {
			got = append(got, parameter)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s has the parameters %v, its address %v", name, got, want)
		}
	}
}
