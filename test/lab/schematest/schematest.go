// Package schematest validates messages with the schemas in docs/schemas. It doesn't use the code
// that writes messages or schemas.
package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Schema is a compiled schema.
type Schema struct{ schema *jsonschema.Schema }

// Validate returns nil if the JSON text matches the schema. Otherwise the error says why it doesn't.
func (s Schema) Validate(text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.schema.Validate(value)
}

// ValidateValue is Validate for a decoded JSON value.
func (s Schema) ValidateValue(value any) error { return s.schema.Validate(value) }

// Event returns the schema of events in the CloudEvents JSON format. Unlike the published schema, it
// rejects unknown attributes, and unknown members in the data of markers.
func Event(t testing.TB) Schema {
	document := read(t, "event.v1.json")
	for name, definition := range document["$defs"].(map[string]any) {
		properties, _ := definition.(map[string]any)["properties"].(map[string]any)
		if properties["specversion"] != nil || strings.HasSuffix(name, "Data") {
			definition.(map[string]any)["unevaluatedProperties"] = false
		}
	}
	return compile(t, document, "")
}

// Data returns the schema in a file in docs/schemas.
func Data(t testing.TB, file string) Schema { return compile(t, read(t, file), "") }

// Message returns the header and payload schemas of a message in the AsyncAPI document. Unlike the
// published schema, the header schema rejects unknown headers.
func Message(t testing.TB, name string) (headers, payload Schema) {
	t.Helper()
	document := read(t, "asyncapi.yaml")
	messages := document["components"].(map[string]any)["messages"].(map[string]any)
	message, ok := messages[name].(map[string]any)
	if !ok {
		t.Fatalf("the AsyncAPI document has no message %s", name)
	}
	message["headers"].(map[string]any)["unevaluatedProperties"] = false
	at := "#/components/messages/" + name
	return compile(t, document, at+"/headers"), compile(t, document, at+"/payload")
}

// CheckMessage validates a message with its schemas in the AsyncAPI document. The header schema must
// define every header of the message.
func CheckMessage(t testing.TB, name string, headers map[string]string, body []byte) {
	t.Helper()
	ofHeaders, ofPayload := Message(t, name)
	values := map[string]any{}
	for header, value := range headers {
		values[header] = value
	}
	if err := ofHeaders.ValidateValue(values); err != nil {
		t.Errorf("headers of %s: %v\n%q", name, err, headers)
	}
	if body == nil {
		body = []byte("null") // a Kafka record without a value
	}
	if err := ofPayload.Validate(body); err != nil {
		t.Errorf("payload of %s: %v\n%s", name, err, body)
	}
	values["unknown"] = "x"
	if ofHeaders.ValidateValue(values) == nil {
		t.Errorf("%s: the schema accepts an unknown header", name)
	}
	if name != "tombstoneOnKafka" && ofHeaders.ValidateValue(map[string]any{}) == nil {
		t.Errorf("%s: accepted without headers", name)
	}
}

// Structured returns an event in the CloudEvents JSON format. Its parameters are the attributes and
// data of a message in binary mode.
func Structured(attributes map[string]string, data []byte) ([]byte, error) {
	event := map[string]any{"data": json.RawMessage(data)}
	for name, value := range attributes {
		event[name] = value
		if name == "finalstateunknown" || name == "truncated" { // of type Boolean
			event[name] = json.RawMessage(value)
		}
	}
	return json.Marshal(event)
}

func compile(t testing.TB, document map[string]any, at string) Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.AssertContent()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json" + at)
	if err != nil {
		t.Fatal(err)
	}
	return Schema{schema}
}

// read reads a file in docs/schemas of the module that contains the test.
func read(t testing.TB, file string) map[string]any {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "schemas", file))
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil { // JSON is a subset of YAML
		t.Fatal(err)
	}
	return document
}

func moduleRoot() (string, error) {
	directory, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(directory, "go.mod")); missing == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			err = fmt.Errorf("no go.mod above the working directory")
		}
		directory = filepath.Dir(directory)
	}
	return "", err
}
