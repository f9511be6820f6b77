package tail

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

func TestJSON(t *testing.T) {
	e := change(t, event.Created, pods, "default", "web-1", "12345")
	want, err := e.Message.Structured()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.JSON(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s (%v), want the published event: %s", got, err, want)
	}
}

// TestJSONHostile verifies that the output escapes unprintable characters and still equals the event.
func TestJSONHostile(t *testing.T) {
	body := "{\"kind\":\"Pod\",\"metadata\":{\"annotations\":{\"a\":\"\u009b2J\x7f\u202e\U000e0041 é 日\u200d\"}}}"
	e := change(t, event.Created, pods, "default", "web-1", "1", func(c *event.Change) { c.Object.Body = event.JSON([]byte(body)) })
	plain, err := e.Message.Structured()
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	const want = `"a":"\u009b2J\u007f\u202e\udb40\udc41 é 日\u200d"`
	if !bytes.Contains(got, []byte(want)) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	if !reflect.DeepEqual(decoded(t, got), decoded(t, plain)) {
		t.Errorf("%q does not mean what %q means", got, plain)
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, tc := range []struct{ name, attribute, value, data string }{
		{"a name that is none", "x\":1,\"\x1b[2J", "1", `null`},
		{"a boolean that is none", "truncated", "1,\x1b[2J", `null`},
		{"data that is no JSON", "x", "1", "\x1b[2J"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := foreign("t", "s")
			e.Message.Attributes = append(e.Message.Attributes, event.Attribute{Name: tc.attribute, Value: tc.value})
			e.Message.Data = []byte(tc.data)
			if got, err := e.JSON(); err == nil {
				t.Errorf("got %q, want an error", got)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("x", "\x1b", []byte("{\"a\":\"\x9b\u009b\U000e0041\"}"))
	f.Add("truncated", "true", []byte("[1]"))
	f.Fuzz(func(t *testing.T, attribute, value string, data []byte) {
		m := &event.Message{ID: "1", Data: data, Attributes: []event.Attribute{{Name: attribute, Value: value}}}
		got, err := Event{Message: m}.JSON()
		if err != nil {
			return
		}
		if bytes.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.Valid(got) {
			t.Errorf("%q has what does not print", got)
		}
		if plain, _ := m.Structured(); !reflect.DeepEqual(decoded(t, got), decoded(t, plain)) {
			t.Errorf("%q does not mean what %q means", got, plain)
		}
	})
}

func decoded(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

// TestPointOnKafka verifies how tail shows a consistency point on Kafka. Such a point has no data
// and covers one partition.
func TestPointOnKafka(t *testing.T) {
	m, err := event.Builder{Cluster: "prod"}.Resolved(event.Point{Resource: deployments, Version: "7", AsOf: someTime, Objects: 3, Taken: someTime})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = nil
	e := Event{Delivery: publish.Delivery{Cluster: "prod", Stored: someTime, Log: publish.Log{Topic: "kuberelay", Partition: 2}}, Message: m}
	b, err := e.JSON()
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), `"resourceversion":"7"`) || strings.Contains(string(b), `"data"`) {
		t.Errorf("JSON = %s, %v", b, err)
	}
	text := &Text{Location: time.UTC, Now: func() time.Time { return someTime }}
	if line := text.Line(e); !strings.HasSuffix(line, "v7  3 objects  partition 2") {
		t.Errorf("line = %q", line)
	}
}
