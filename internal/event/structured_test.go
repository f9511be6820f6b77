package event

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/nametest"

	ce "github.com/cloudevents/sdk-go/v2/event"
	cetypes "github.com/cloudevents/sdk-go/v2/types"
	"k8s.io/apimachinery/pkg/types"
)

// checkWithSDK decodes the structured form of m with the CloudEvents SDK. The result must be a
// valid event with the same attributes and data.
func checkWithSDK(t *testing.T, m *Message) {
	t.Helper()
	b, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(b, "\r\n") || !json.Valid(b) {
		t.Errorf("not one line of JSON: %q", b)
	}
	var e ce.Event
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatalf("the SDK cannot decode %s: %v", b, err)
	}
	if err := e.Validate(); err != nil {
		t.Errorf("the SDK rejects %s: %v", b, err)
	}
	if got, want := sdkAttributes(t, e), sorted(m.Attributes); !slices.Equal(got, want) {
		t.Errorf("attributes as the SDK reads them:\n got %q\nwant %q", got, want)
	}
	if e.DataBase64 || !jsonEqual(t, e.Data(), m.Data) {
		t.Errorf("data as the SDK reads it:\n got %s\nwant %s", e.Data(), m.Data)
	}
	for _, a := range m.Attributes {
		checkString(t, a.Name, a.Value)
	}
	checkParseStructured(t, b, m)
}

func checkParseStructured(t *testing.T, b []byte, m *Message) {
	t.Helper()
	got, err := ParseStructured(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != m.ID || !slices.Equal(got.Attributes, m.Attributes) || !jsonEqual(t, got.Data, m.Data) {
		t.Errorf("ParseStructured:\n got %+v\nwant %+v", got, m)
	}
}

func sdkAttributes(t *testing.T, e ce.Event) []Attribute {
	t.Helper()
	a := []Attribute{
		{"id", e.ID()}, {"source", e.Source()}, {"specversion", e.SpecVersion()}, {"type", e.Type()}, {"subject", e.Subject()},
		{"time", cetypes.FormatTime(e.Time())}, {"datacontenttype", e.DataContentType()},
	}
	if e.DataSchema() != "" {
		a = append(a, Attribute{"dataschema", e.DataSchema()})
	}
	for name, value := range e.Extensions() {
		s, err := cetypes.Format(value)
		if err != nil {
			t.Fatal(err)
		}
		a = append(a, Attribute{name, s})
	}
	return sorted(a)
}

func sorted(a []Attribute) []Attribute {
	return slices.SortedFunc(slices.Values(a), func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
}

func jsonEqual(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y bytes.Buffer
	if err := json.Compact(&x, a); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&y, b); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

func TestStructuredBooleansAreBooleans(t *testing.T) {
	m, err := builder.Message(change(pods, "a", "b", func(c *Change) {
		c.Type, c.Truncated, c.Object.Body = Deleted, true, Body{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"truncated":true`, `"finalstateunknown":true`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s does not contain %s", b, want)
		}
	}
}

// TestStructuredIsOneLine verifies that an event is one line for any data. The sink stdout relies
// on it.
func TestStructuredIsOneLine(t *testing.T) {
	m := &Message{ID: "a", Attributes: []Attribute{{"id", "a"}, {"name", "b\nc"}}, Data: []byte("{\n \"x\": [1,\n2]\n}")}
	b, err := m.Structured()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), `{"id":"a","name":"b\nc","data":{"x":[1,2]}}`; got != want {
		t.Errorf("Structured = %s, want %s", got, want)
	}
}

// TestStructuredWithoutData verifies that an event without data, such as a consistency point on
// Kafka, has no member "data".
func TestStructuredWithoutData(t *testing.T) {
	m := &Message{ID: "a", Attributes: []Attribute{{"id", "a"}, {"name", "b"}}}
	if b, err := m.Structured(); err != nil || string(b) != `{"id":"a","name":"b"}` {
		t.Errorf("Structured = %s, %v", b, err)
	}
}

func TestStructuredRefusesBadData(t *testing.T) {
	for _, data := range []string{" ", "canary", `{"a":1}{"b":2}`, `{},"id":"x"`} {
		m := &Message{ID: "a", Attributes: []Attribute{{"id", "a"}}, Data: []byte(data)}
		b, err := m.Structured()
		if err == nil {
			t.Errorf("Structured with data %q = %s, want an error", data, b)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error contains the data: %v", err)
		}
	}
}

func TestParseStructured(t *testing.T) {
	m, err := ParseStructured([]byte(` {"data_base64":"eyJhIjoxfQ==","specversion":"1.0","id":"a\u0062","n":12,"t":true,"gone":null} `))
	if err != nil {
		t.Fatal(err)
	}
	want := []Attribute{{"specversion", "1.0"}, {"id", "ab"}, {"n", "12"}, {"t", "true"}}
	if m.ID != "ab" || string(m.Data) != `{"a":1}` || !slices.Equal(m.Attributes, want) {
		t.Errorf("ParseStructured = %+v", m)
	}
}

func TestParseStructuredRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":             ``,
		"no object":           `[]`,
		"cut":                 `{"specversion":"1.0","id":"a"`,
		"more behind":         `{"specversion":"1.0","id":"a"} {}`,
		"no id":               `{"specversion":"1.0"}`,
		"no version":          `{"id":"a"}`,
		"another version":     `{"specversion":"0.3","id":"a"}`,
		"an attribute twice":  `{"specversion":"1.0","id":"a","id":"b"}`,
		"data in two forms":   `{"specversion":"1.0","id":"a","data":1,"data_base64":""}`,
		"not base64":          `{"specversion":"1.0","id":"a","data_base64":"*"}`,
		"base64 not a string": `{"specversion":"1.0","id":"a","data_base64":1}`,
		"an object":           `{"specversion":"1.0","id":"a","x":{}}`,
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			if m, err := ParseStructured([]byte(s)); err == nil {
				t.Errorf("ParseStructured(%s) = %+v, want an error", s, m)
			}
		})
	}
}

func FuzzStructured(f *testing.F) {
	for i, s := range nametest.Hostile() {
		f.Add("c1", "default", s, "6f1b", "123", s, uint16(i), i%2 == 0)
		f.Add(s, s, s, s, s, "", uint16(0), i%2 == 1)
	}
	f.Fuzz(func(t *testing.T, cluster, namespace, name, uid, version, note string, epoch uint16, deleted bool) {
		c := change(widgets, namespace, name, func(c *Change) {
			c.Epoch, c.Previous = epoch, version
			c.Object.UID, c.Object.ResourceVersion = types.UID(uid), version
			if deleted {
				c.Type, c.Object.Body = Deleted, Body{}
				return
			}
			b, err := EncodeJSON(map[string]any{"metadata": map[string]any{"name": name, "uid": uid}, "note": note})
			if err != nil {
				t.Fatal(err)
			}
			c.Object.Body = JSON(b)
			if b, err = EncodeJSON(map[string]any{note: name, name: note}); err != nil {
				t.Fatal(err)
			}
			last := *c.Object
			last.Body = JSON(b)
			c.Before = &last
		})
		m, err := (Builder{Cluster: cluster}).Message(c)
		if err != nil {
			if cluster != "" && name != "" && uid != "" && version != "" {
				t.Fatal(err)
			}
			return
		}
		checkWithSDK(t, m)
		if !deleted && m.Attribute("changed") == "" {
			t.Error("nothing has changed")
		}
		acked, err := AckedFrom(m.Attribute)
		if err != nil || acked != m.Acked {
			t.Errorf("AckedFrom = %+v, %v; want %+v", acked, err, m.Acked)
		}
	})
}

// FuzzParseStructured verifies that a parsed event is encoded as the same event again.
func FuzzParseStructured(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"a","n":12,"t":true,"gone":null,"data":{"a":[1, 2]}}`))
	f.Add([]byte(`{"data_base64":"eyJhIjoxfQ==","specversion":"1.0","id":"a\u0062\ud800"}`))
	for _, tt := range changes {
		if m, err := builder.Message(tt.change); err == nil {
			if b, err := m.Structured(); err == nil {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseStructured(b)
		if err != nil {
			return
		}
		if m.ID == "" || m.Attribute("id") != m.ID {
			t.Errorf("ParseStructured(%q) = %+v", b, m)
		}
		if len(m.Data) == 0 {
			return
		}
		if _, err := m.Structured(); err != nil && json.Valid(m.Data) {
			t.Errorf("Structured of %+v: %v", m, err)
		}
	})
}
