package publishtest

import (
	"bytes"
	"encoding/json"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Attributes returns the attributes of a message by name, for comparison with [SDKAttributes].
func Attributes(m *event.Message) map[string]string {
	attributes := map[string]string{}
	for _, a := range m.Attributes {
		attributes[a.Name] = a.Value
	}
	return attributes
}

// SDKAttributes returns all attributes that the CloudEvents SDK reads from an event, as strings. It
// omits the extensions that the SDK's Kafka receiver adds.
func SDKAttributes(t testing.TB, e *cloudevents.Event) map[string]string {
	t.Helper()
	attributes := map[string]string{
		"id": e.ID(), "source": e.Source(), "specversion": e.SpecVersion(), "type": e.Type(),
		"subject": e.Subject(), "time": types.FormatTime(e.Time()), "datacontenttype": e.DataContentType(),
	}
	if e.DataSchema() != "" {
		attributes["dataschema"] = e.DataSchema()
	}
	for name, value := range e.Extensions() {
		switch name {
		case "kafkaoffset", "kafkapartition", "kafkatopic":
			continue
		}
		text, err := types.Format(value)
		if err != nil {
			t.Fatal(err)
		}
		attributes[name] = text
	}
	return attributes
}

// CanonicalJSON returns the JSON text with sorted members and unchanged numbers.
func CanonicalJSON(t testing.TB, b []byte) string {
	t.Helper()
	var v any
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}
