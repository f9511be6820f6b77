package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/schematest"
)

func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "schema", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// createForSchema creates the objects whose events checkSchemas validates.
func createForSchema(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	create(t, cp, manifest(t, "objects.yaml"))
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest(t, "gadget.yaml")), &o.Object); err != nil {
		t.Fatal(err)
	}
	gadgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"})
	if err := poll.Until(t.Context(), tailLimit, "the gadget is created and has a schema", func(ctx context.Context) error {
		if _, err := gadgets.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if code, _, stderr := schemaCommand(t, "gadgets.example.com"); code != 0 { // the API server serves a resource before its OpenAPI document
			return errors.New(stderr)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// schemaCommand runs 'forwarder schema'.
func schemaCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
	defer cancel()
	code = run(ctx, append([]string{"schema"}, args...), &out, &err)
	return code, out.String(), err.String()
}

// schemaOf returns the schema of a resource. It verifies that the schema is self-contained, and that
// it has no unused definition and no keyword that JSON Schema doesn't define.
func schemaOf(t *testing.T, args ...string) *jsonschema.Schema {
	t.Helper()
	code, stdout, stderr := schemaCommand(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%q: exit code %d, %s", args, code, stderr)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	checkKeywords(t, document, false)
	for name := range document.(map[string]any)["$defs"].(map[string]any) {
		if !strings.Contains(stdout, `"#/$defs/`+name+`"`) {
			t.Errorf("%q: nothing refers to the definition %s", args, name)
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.AssertContent()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return compiled
}

// keywords are the JSON Schema keywords that a schema of a resource can have.
var keywords = strings.Fields("$schema $ref $defs title description type format properties additionalProperties required items enum const " +
	"allOf anyOf oneOf not minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern minItems maxItems uniqueItems contentEncoding")

// checkKeywords checks that a schema has no other keywords. If named is true, value is a map of names
// to schemas.
func checkKeywords(t *testing.T, value any, named bool) {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if !named && !slices.Contains(keywords, name) {
				t.Errorf("the keyword %s is not one of JSON Schema", name)
			}
			if named || name != "enum" && name != "const" {
				checkKeywords(t, member, !named && (name == "properties" || name == "$defs"))
			}
		}
	case []any:
		for _, member := range value {
			checkKeywords(t, member, false)
		}
	}
}

// checkSchemas validates the data of every event on the bus with the schema that the command prints
// for its resource.
func checkSchemas(t *testing.T, url string) {
	t.Helper()
	bus, err := harness.RecordNATS(url, "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	if err := bus.CatchUp(t.Context(), tailLimit); err != nil {
		t.Fatal(err)
	}
	all, _, err := bus.All()
	if err != nil {
		t.Fatal(err)
	}
	schemas, data := map[string]*jsonschema.Schema{}, map[string]map[string]any{}
	for _, m := range all {
		key := strings.Split(m.Attributes["partitionkey"], "/")
		if key[1] == "_control" {
			continue
		}
		resource := key[2]
		if key[1] != "core" {
			resource += "." + key[1]
		}
		version := m.Attributes["apiversion"][strings.LastIndexByte(m.Attributes["apiversion"], '/')+1:]
		if schemas[resource] == nil {
			schemas[resource] = schemaOf(t, resource, "--version", version)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Data))
		if err == nil {
			err = schemas[resource].Validate(value)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", m.Subject, err, m.Data)
			continue
		}
		data[resource+"/"+m.Attributes["name"]] = value.(map[string]any)
	}
	if len(schemas) < 15 {
		t.Errorf("events of %d resources", len(schemas))
	}
	for _, of := range []struct{ resource, name string }{{"pods", "web"}, {"deployments.apps", "web"}, {"gadgets.example.com", "g"}} {
		checkRefusals(t, schemas[of.resource], data[of.resource+"/"+of.name], of.resource)
		checkChange(t, of.resource, data[of.resource+"/"+of.name])
	}
	gadget := data["gadgets.example.com/g"]
	for field, value := range map[string]any{"size": json.Number("0"), "port": true, "color": "blue", "note": json.Number("1"), "template": "x"} {
		spec := maps.Clone(gadget["spec"].(map[string]any))
		spec[field] = value
		if schemas["gadgets.example.com"].Validate(map[string]any{"metadata": gadget["metadata"], "spec": spec}) == nil {
			t.Errorf("a gadget whose %s is %v is accepted", field, value)
		}
	}
}

// checkRefusals checks that a schema rejects data that no event of the resource can have, and that it
// accepts events without the whole object.
func checkRefusals(t *testing.T, schema *jsonschema.Schema, object map[string]any, resource string) {
	t.Helper()
	if object == nil {
		t.Fatalf("no event of %s", resource)
	}
	metadata := maps.Clone(object["metadata"].(map[string]any))
	delete(metadata, "uid")
	for what, altered := range map[string]map[string]any{
		"without uid":     {"metadata": metadata},
		"another kind":    {"kind": "Thing"},
		"another version": {"apiVersion": "v7"},
		"spec of texts":   {"spec": map[string]any{"replicas": "x", "containers": "x", "size": "x"}},
		"spec is a text":  {"spec": "x"},
	} {
		whole := maps.Clone(object)
		maps.Copy(whole, altered)
		if schema.Validate(whole) == nil {
			t.Errorf("%s, %s: accepted", resource, what)
		}
	}
	for _, part := range []map[string]any{
		{"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"]},
		{"metadata": map[string]any{"name": "n", "namespace": "n", "uid": "u"}},
	} {
		if err := schema.Validate(part); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

// checkChange checks the schema of a change.
func checkChange(t *testing.T, resource string, object map[string]any) {
	t.Helper()
	t.Setenv("KUBERELAY_DATA", "change")
	defer t.Setenv("KUBERELAY_DATA", "object")
	schema := schemaOf(t, resource)
	change := map[string]any{"object": object, "previous": object, "patch": []any{}}
	text, err := json.Marshal(change)
	if err == nil {
		err = schematest.Data(t, "change.v1.json").Validate(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(change); err != nil {
		t.Errorf("%s: %v", resource, err)
	}
	change["previous"], change["patch"] = nil, nil
	if err := schema.Validate(change); err != nil {
		t.Errorf("%s: %v", resource, err)
	}
	change["object"] = map[string]any{"metadata": map[string]any{"name": "n"}}
	if schema.Validate(change) == nil || schema.Validate(object) == nil {
		t.Errorf("%s: a change without object is accepted", resource)
	}
}

// checkSchemaErrors checks the error messages of the command.
func checkSchemaErrors(t *testing.T) {
	t.Helper()
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"deploymets.apps", exitFailure, `does not serve "deploymets.apps"; did you mean deployments.apps?`},
		{"gadget.exampel.com", exitFailure, `did you mean gadgets.example.com?`},
		{"deploymnts", exitFailure, `did you mean deployments.apps?`},
		{"pod --version v2", exitFailure, "does not serve pods in version v2, only in v1"},
		{"gadgets.example.com --version v1alpha1", exitFailure, "only in v1, v1beta1"},
		{"*.apps", exitUsage, "selects several resources: name one"},
		{"", exitUsage, "name a resource"},
	} {
		code, stdout, stderr := schemaCommand(t, strings.Fields(tc.args)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit code %d, %q, %q; want %d, %q", tc.args, code, stdout, stderr, tc.code, tc.want)
		}
	}
	// Each version has its own schema, and the command accepts short names.
	for _, args := range []string{"gadgets.example.com --version v1beta1", "Gadget.v1beta1.example.com", "deploy"} {
		schemaOf(t, strings.Fields(args)...)
	}
}
