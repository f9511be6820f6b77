package wire

import (
	"fmt"
	"strings"
	"testing"
)

// TestMistakesAreRefused verifies that the parsers reject mistakes that a writer can make and that
// the reader of the same project may accept.
func TestMistakesAreRefused(t *testing.T) {
	subject := func(s string) error { _, err := ParseSubject("kuberelay", s); return err }
	key := func(s string) error { _, err := ParseKey(s); return err }
	sequence := func(s string) error { _, err := ParseSequence(s); return err }
	value := func(s string) error { _, err := header(s); return err }
	attribute := func(s string) error { _, err := Event{attributes: map[string]string{"a": s}}.Text("a"); return err }
	nats := func(s string) error {
		headers := map[string][]string{"ce-id": {"a"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-specversion": {"1.0"}}
		for line := range strings.Lines(s) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			headers[name] = append(headers[name], value)
		}
		_, err := FromNATS(headers, nil)
		return err
	}
	kafka := func(s string) error {
		headers := []Header{{"ce_id", []byte("a")}, {"ce_source", []byte("/s")}, {"ce_type", []byte("t")}, {"ce_specversion", []byte("1.0")}}
		for line := range strings.Lines(s) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			headers = append(headers, Header{name, []byte(value)})
		}
		_, err := FromKafka(headers, []byte("{}"))
		return err
	}
	document := func(s string) error {
		_, err := FromKafka([]Header{{"content-type", []byte("application/cloudevents+json; charset=UTF-8")}}, []byte(s))
		return err
	}
	claim := func(s string) error { _, err := ParseClaim([]byte(s)); return err }
	snapshot := func(s string) error { _, err := ParseSnapshot([]byte(s)); return err }
	writer := func(s string) error { _, err := ParseWriter([]byte(s)); return err }
	point := func(s string) error {
		attributes := map[string]string{"group": "", "resource": "pods", "resourceversion": "7", "objects": "3", "time": "2026-01-01T00:00:00Z"}
		_, err := ParsePoint(Event{attributes: attributes, Data: []byte(s)})
		return err
	}
	for name, c := range map[string]struct {
		read  func(string) error
		right string
		wrong []string
	}{
		"subject": {subject, "kuberelay.prod.apps.deployments.default.a=2Eb", []string{
			"", "kuberelay", "other.prod.apps.deployments.default.a", "kuberelay.prod.apps.deployments.default.a.b", "kuberelay.prod.apps.deployments.default.a=2eb",
			"kuberelay.prod.apps.deployments.default.a=41", "kuberelay.prod.apps.deployments.default.a%2Eb", "kuberelay.prod.apps.deployments.default.=", "kuberelay.prod.apps.deployments.default.a=2",
			"kuberelay.prod.apps.deployments.default.a=", "kuberelay.prod.apps.deployments..a", "kuberelay.prod.apps.deployments.default.é", "kuberelay..apps.deployments.default.a", "kuberelay.prod.apps.deployments.default.a b",
		}},
		"group in a subject": {subject, "kuberelay.prod.a_b.deployments._.a", []string{
			"kuberelay.prod.a=2Eb.deployments._.a", "kuberelay.prod._a.deployments._.a", "kuberelay.prod.cor=65.deployments._.a", "kuberelay.prod..deployments._.a",
		}},
		"marker's subject": {subject, "kuberelay.prod._control.snapshot.core.pods", []string{
			"kuberelay.prod._control.other.core.pods", "kuberelay.prod._control.cluster.a.claimed", "kuberelay.prod._control.cluster._.other", "kuberelay.prod._control.writer.t.1",
		}},
		"key": {key, "prod/core/pods/_/a%2Fb", []string{
			"", "prod/core/pods/_", "prod/core/pods/_/a/b", "prod/core/pods/_/a%2fb", "prod/core/pods/_/%41", "prod/core/pods/_/%", "prod/core/pods/_/", "prod//pods/_/a", "prod/core/pods//a", "/core/pods/_/a",
			"prod/_a/pods/_/a", "prod/core/pods/_/\x01", "prod/core/pods/_/\xff", "prod/core/pods/_/%20",
		}},
		"marker's key": {key, "prod/_control/writer/t/3", []string{
			"prod/_control/writer/t/-1", "prod/_control/writer/t/03", "prod/_control/writer/t/+3", "prod/_control/writer/t/99999999999", "prod/_control/writer/t/", "prod/_control/other/_/a", "prod/_control/cluster/_/other",
		}},
		"sequence": {sequence, "0000.00000000000000012345", []string{
			"", "0000", "000.00000000000000012345", "00000.00000000000000012345", "-001.00000000000000012345", "+001.00000000000000012345", "10000.00000000000000012345", "65536.00000000000000012345", "99999999999999999999.00000000000000012345",
			"0000.12345", "0000.000000000000000012345", "0x00.00000000000000012345",
		}},
		"header of NATS": {value, "a%20b%C3%A9", []string{"a b", "a%2", "a%", "a%zz", "a%c3%a9", "%41", "%FF", "\"a\"", "é"}},
		"attribute":      {attribute, "a%25%00", []string{"%", "a%2", "a%2525x%zz", "%41", "%e2%80%a8", "\x00"}},
		"event of NATS": {nats, "ce-name: a", []string{
			"ce-name: ", "Ce-name: a", "CE-NAME: a", "ce-name: a\nce-name: b", "ce-na_me: a", "ce-: a", "ce-name: a b", "content-type: application/cloudevents+json", "content-type: text/plain", "Content-Type: application/json",
		}},
		"record of Kafka": {kafka, "ce_name: é\ncontent-type: application/json", []string{
			"ce_name: ", "ce_Name: a", "CE_name: a", "ce_name: a\nce_name: a", "ce_name: \xff", "ce_na-me: a", "content-type: application/cloudevents+json", "content-type: a\ncontent-type: b", "ce_datacontenttype: a\ncontent-type: b",
		}},
		"structured event": {document, `{"id":"a","source":"/s","type":"t","specversion":"1.0","truncated":true,"data":{"a":1}}`, []string{
			``, `[]`, `{`, `{"id":"a"`, `{"id":"a","source":"/s","type":"t","specversion":"1.0"}`, `{"id":"a","id":"a","source":"/s","type":"t","specversion":"1.0","data":{}}`,
			`{"id":"a","source":"/s","type":"t","specversion":"1.0","data":{},"data":{}}`, `{"id":"a","source":"/s","type":"t","specversion":"1.0","data":{}}x`, `{"id":"a","source":"/s","type":"t","specversion":"0.3","data":{}}`,
			`{"id":"a","source":"/s","type":"t","specversion":"1.0","name":null,"data":{}}`, `{"id":"a","source":"/s","type":"t","specversion":"1.0","name":{},"data":{}}`, `{"id":"a","source":"/s","type":"t","specversion":"1.0","name":1.5,"data":{}}`,
			`{"id":"a","source":"/s","type":"t","specversion":"1.0","name":"","data":{}}`, `{"id":"a","source":"/s","type":"t","specversion":"1.0","data_base64":"e30="}`, `{"id":"a","source":"/s","type":"t","specversion":"1.0","n":9999999999,"data":{}}`,
			`{"source":"/s","type":"t","specversion":"1.0","data":{}}`,
		}},
		"a text that stays in memory": {kafka, "ce_uid: " + strings.Repeat("u", 4096) + "\nce_name: " + strings.Repeat("n", 4097), []string{
			"ce_uid: " + strings.Repeat("u", 4097), "ce_resourceversion: " + strings.Repeat("7", 4097), "ce_previousversion: " + strings.Repeat("7", 4097), "ce_apiversion: " + strings.Repeat("a", 4097),
			"ce_resource: " + strings.Repeat("r", 4097), "ce_group: " + strings.Repeat("g", 4097),
		}},
		"a long id": {document, `{"id":"` + strings.Repeat("i", 4096) + `","source":"/s","type":"t","specversion":"1.0","data":{}}`, []string{
			`{"id":"` + strings.Repeat("i", 4097) + `","source":"/s","type":"t","specversion":"1.0","data":{}}`,
		}},
		"claim": {claim, `{"uid":"a","claimed":"2026-01-01T00:00:00.5Z","epoch":0}`, []string{
			``, `[]`, `{}`, `{"uid":"","claimed":"2026-01-01T00:00:00Z","epoch":0}`, `{"uid":"a","claimed":"yesterday","epoch":0}`, `{"uid":"a","claimed":"2026-01-01T00:00:00Z","epoch":-1}`,
			`{"uid":"a","claimed":"2026-01-01T00:00:00Z","epoch":65536}`, `{"uid":"a","claimed":"2026-01-01T00:00:00Z","epoch":"0"}`, `{"uid":"a","claimed":"2026-01-01T00:00:00Z"}`, `{"uid":"a","claimed":"2026-01-01T00:00:00Z","epoch":0,"replaces":""}`,
			`{"uid":1,"claimed":"2026-01-01T00:00:00Z","epoch":0}`,
		}},
		"snapshot": {snapshot, `{"group":"","resource":"pods","count":3}`, []string{
			``, `{}`, `{"group":"","resource":"pods"}`, `{"group":"","resource":"pods","count":-1}`, `{"group":"","resource":"pods","count":1.5}`, `{"group":"","resource":"pods","count":9223372036854775808}`, `{"group":null,"resource":"pods","count":3}`,
		}},
		"point": {point, `{"group":"","resource":"pods","resourceVersion":"7","asOf":"2026-01-01T00:00:00Z","objects":3}`, []string{
			`{`, `{}`, `{"group":"a","resource":"pods","resourceVersion":"7","asOf":"2026-01-01T00:00:00Z","objects":3}`, `{"group":"","resource":"nodes","resourceVersion":"7","asOf":"2026-01-01T00:00:00Z","objects":3}`,
			`{"group":"","resource":"pods","resourceVersion":"8","asOf":"2026-01-01T00:00:00Z","objects":3}`, `{"group":"","resource":"pods","resourceVersion":"7","asOf":"2026-01-01T00:00:01Z","objects":3}`,
			`{"group":"","resource":"pods","resourceVersion":"7","asOf":"2026-01-01T00:00:00Z","objects":4}`,
		}},
		"writer": {writer, `{"writer":"w","topic":"t","partition":3}`, []string{``, `{"topic":"t","partition":3}`, `{"writer":"w","topic":"t","partition":-3}`, `{"writer":"w","topic":"t","partition":2147483648}`, `{"writer":"w","partition":3}`}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.read(c.right); err != nil {
				t.Errorf("%q: %v", c.right, err)
			}
			for _, s := range c.wrong {
				if c.read(s) == nil {
					t.Errorf("%.200q is read", s)
				}
			}
		})
	}
}

func TestObjectOf(t *testing.T) {
	for schema, texts := range map[string][]string{"": {`{"a":1}`}, changeSchema: {`{"object":{"a":1},"previous":null,"patch":null}`}} {
		for _, s := range texts {
			e := Event{attributes: map[string]string{"dataschema": schema}, Data: []byte(s)}
			if got, err := e.ObjectOf(); err != nil || got["a"] == nil {
				t.Errorf("%q: got %v, %v", schema, got, err)
			}
		}
	}
	for schema, s := range map[string]string{"": `[]`, changeSchema: `{"Object":{}}`, "other": `{}`} {
		e := Event{attributes: map[string]string{"dataschema": schema}, Data: []byte(s)}
		if got, err := e.ObjectOf(); err == nil {
			t.Errorf("%q: got %v", schema, got)
		}
	}
}

// TestOthersOf verifies that OthersOf returns every value in the data of a change that is not in the
// object.
func TestOthersOf(t *testing.T) {
	const data = `{"object":{"a":1},"previous":{"data":{"x":"1"}},"patch":[{"op":"replace","path":"/data/y","value":"2"},{"op":"remove","path":"/data/z"},
		{"op":"add","path":"/data","value":{"v":"3"}},{"op":"replace","path":"","value":{"data":{"w":"4"}}},{"op":"add","path":"","value":5},7,
		{"op":"add","path":"/metadata/labels/a~1b~01","value":"5"},{"op":"remove","path":"/metadata/labels/c"}]}`
	for schema, want := range map[string]string{changeSchema: "[map[data:map[x:1]] map[data:map[y:2]] map[data:map[v:3]] map[data:map[w:4]] map[metadata:map[labels:map[a/b~1:5]]] map[metadata:map[labels:map[c:<nil>]]]]", "": "[]", "other": "[]"} {
		if got := fmt.Sprint(Event{attributes: map[string]string{"dataschema": schema}, Data: []byte(data)}.OthersOf()); got != want {
			t.Errorf("%q: got %s, want %s", schema, got, want)
		}
	}
	deep := `{"patch":[{"op":"add","path":"/metadata/labels/a/b` + strings.Repeat("/c", 10_000) + `","value":1}]}`
	depth := 0
	for v := any(Event{attributes: map[string]string{"dataschema": changeSchema}, Data: []byte(deep)}.OthersOf()[0]); v != nil; depth++ {
		t, _ := v.(Tree)
		v = nil
		for _, v = range t {
		}
	}
	if depth > 10 {
		t.Errorf("a path of 10,004 names becomes a tree of %d levels", depth)
	}
	for _, text := range []string{`{"object":{},"previous":null,"patch":null}`, `{`, `[]`, `{"previous":[],"patch":{}}`} {
		if got := (Event{attributes: map[string]string{"dataschema": changeSchema}, Data: []byte(text)}).OthersOf(); len(got) != 0 {
			t.Errorf("%s: got %v", text, got)
		}
	}
}
