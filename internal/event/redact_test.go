package event

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var secrets = Resource{"", "v1", "secrets", "Secret", true}

// The values of secretJSON; those of data are in base64 there.
const (
	canary1 = "canary-hunter2"
	canary2 = "canary-tr0ub4dor"
	canary3 = "canary-s3cr3t"
)

var secretJSON = fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"Opaque","immutable":true,
	"metadata":{"name":"db","namespace":"default","uid":"6f1b","resourceVersion":"7","labels":{"app":"db"},
		"annotations":{%[4]q:%[5]q,"kapp.k14s.io/original":%[5]q,"objectset.rio.cattle.io/applied":%[6]q,
			"note":"the password is %[1]s","encoded":"x-%[7]s","encoded-token":%[8]q,"json":" {}","plain":"kept"},
		"managedFields":[{"manager":"kubectl","fieldsV1":{"f:data":{"f:%[1]s":{}}}}]},
	"data":{"password":%[7]q,"empty":"","number":42,"nested":{"a":%[3]q},"list":[%[3]q],"not-base64":%[3]q,"null":null,"newline":"\n"},
	"stringData":{"token":%[2]q,"truth":true}}`,
	canary1, canary2, canary3, lastApplied, `{"data":{"password":"`+b64(canary1)+`"}}`, "H4sIAAAA"+strings.Repeat("canary+A/", 40), b64(canary1), b64(canary2))

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// checkNoCanary looks for the values in every form in which they might leak.
func checkNoCanary(t *testing.T, where string, b []byte) {
	t.Helper()
	if bytes.Contains(b, []byte("canary")) {
		t.Errorf("%s holds a value: %s", where, b)
	}
	for _, c := range []string{canary1, canary2, canary3} {
		for _, form := range []string{
			c, b64(c), strings.TrimRight(b64(c), "="), b64(b64(c)), hex.EncodeToString([]byte(c)),
			strings.ToUpper(hex.EncodeToString([]byte(c))), base64.URLEncoding.EncodeToString([]byte(c)),
		} {
			if bytes.Contains(b, []byte(form)) {
				t.Errorf("%s holds a value as %q: %s", where, form, b)
			}
		}
	}
}

func TestNoValueOfASecretIsLeft(t *testing.T) {
	o, err := decoder(secrets).Decode([]byte(secretJSON))
	if err != nil {
		t.Fatal(err)
	}
	checkNoCanary(t, "object", []byte(textOf(o)))
	for _, alter := range []func(*Change){
		nil,
		func(c *Change) { c.Truncated = true },
		func(c *Change) { c.Type = Deleted },
	} {
		c := change(secrets, "default", "db", alter)
		c.Object = o
		m, err := builder.Message(c)
		if err != nil {
			t.Fatal(err)
		}
		checkNoCanary(t, "data", m.Data)
		structured, err := m.Structured()
		if err != nil {
			t.Fatal(err)
		}
		checkNoCanary(t, "structured event", structured)
	}
}

func TestRedactKeepsTheRest(t *testing.T) {
	o, err := decoder(secrets).Decode([]byte(secretJSON))
	if err != nil {
		t.Fatal(err)
	}
	var s struct { // as in corev1.Secret
		Type      string
		Immutable bool
		Metadata  struct {
			Labels, Annotations map[string]string
		}
		Data       map[string][]byte
		StringData map[string]string
	}
	if err := json.Unmarshal([]byte(textOf(o)), &s); err != nil {
		t.Fatalf("a subscriber cannot read %s: %v", textOf(o), err)
	}
	if s.Type != "Opaque" || !s.Immutable || s.Metadata.Labels["app"] != "db" || s.Metadata.Annotations["plain"] != "kept" {
		t.Errorf("lost more than values: %s", textOf(o))
	}
	if len(s.Data) != 8 || len(s.StringData) != 2 || len(s.Metadata.Annotations) != 7 {
		t.Errorf("fields lost: %s", textOf(o))
	}
	hash := regexp.MustCompile(`^hmac-sha256:[0-9a-f]{64}$`)
	for name, v := range s.Data {
		if !hash.Match(v) {
			t.Errorf("data %s = %q, want a hash", name, v)
		}
	}
	for name, v := range s.StringData {
		if !hash.MatchString(v) {
			t.Errorf("stringData %s = %q, want a hash", name, v)
		}
	}
	for name, v := range s.Metadata.Annotations {
		if name != "plain" && !hash.MatchString(v) {
			t.Errorf("annotation %s = %q, want a hash", name, v)
		}
	}
}

func TestMalformedSectionsAreHashed(t *testing.T) {
	for _, section := range []string{`"canary"`, `["canary"]`, `12345678`, `true`} {
		o, err := decoder(secrets).Decode([]byte(`{"metadata":{"name":"a","annotations":"canary"},"data":` + section + `,"stringData":` + section + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(textOf(o), section) || strings.Contains(textOf(o), "canary") {
			t.Errorf("%s was passed through: %s", section, textOf(o))
		}
		if got := strings.Count(textOf(o), `":"hmac-sha256:`); got != 3 {
			t.Errorf("%s is hashed %d times, want 3: %s", section, got, textOf(o))
		}
	}
}

// A Secret without data is one without data.
func TestEmptySectionsStay(t *testing.T) {
	o, err := decoder(secrets).Decode([]byte(`{"metadata":{"name":"a"},"data":null,"stringData":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"apiVersion":"v1","data":null,"kind":"Secret","metadata":{"name":"a"},"stringData":{}}`; textOf(o) != want {
		t.Errorf("body %s, want %s", textOf(o), want)
	}
}

func TestHashShowsChangesAndNothingElse(t *testing.T) {
	c := NewConverter([]byte("key"))
	at := func(ns, name string) *Object { return &Object{Namespace: ns, Name: name} }
	base := c.hash(at("ns", "name"), "data", "field", "value")
	if again := NewConverter([]byte("key")).hash(at("ns", "name"), "data", "field", "value"); again != base {
		t.Errorf("the same value is hashed as %s, then as %s", base, again)
	}
	tests := map[string]string{
		"another value":            c.hash(at("ns", "name"), "data", "field", "value2"),
		"another field":            c.hash(at("ns", "name"), "data", "field2", "value"),
		"another section":          c.hash(at("ns", "name"), "stringData", "field", "value"),
		"another name":             c.hash(at("ns", "name2"), "data", "field", "value"),
		"another namespace":        c.hash(at("ns2", "name"), "data", "field", "value"),
		"another key":              NewConverter([]byte("key2")).hash(at("ns", "name"), "data", "field", "value"),
		"no key":                   NewConverter(nil).hash(at("ns", "name"), "data", "field", "value"),
		"parts moved by one":       c.hash(at("nsn", "ame"), "data", "field", "value"),
		"value moved to field":     c.hash(at("ns", "name"), "data", "fieldv", "alue"),
		"JSON of the same letters": c.hash(at("ns", "name"), "data", "field", []byte("value")),
	}
	seen := map[string]string{base: "the value"}
	for name, got := range tests {
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[got] = name
	}
	if text, json := c.hash(at("a", "b"), "data", "f", "42"), c.hash(at("a", "b"), "data", "f", 42); text == json {
		t.Error(`"42" and 42 have the same hash`)
	}
}

// The hashes are on buses and in checkpoints: another way of making them would show
// every value of every Secret as changed.
func TestHashVector(t *testing.T) {
	got := NewConverter([]byte("key")).hash(&Object{Namespace: "ns", Name: "name"}, "data", "field", "value")
	const want = "hmac-sha256:c55b2cb93c0f7963d22bcd4d5ecd792356dbae946e220c24fd57c339c0de700e"
	if got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
}

// A hash without a key could be found by trying values, so no key is not an empty key.
func TestNoKeyIsARandomKey(t *testing.T) {
	o := &Object{}
	a, b := NewConverter(nil).hash(o, "data", "f", "v"), NewConverter([]byte{}).hash(o, "data", "f", "v")
	if a == b || a == (&Converter{}).hash(o, "data", "f", "v") {
		t.Error("a converter without a key has a known one")
	}
}

// Only core Secrets are redacted; a custom resource of that name is not one.
func TestRedactOnlyCoreSecrets(t *testing.T) {
	r := Resource{"example.com", "v1", "secrets", "Secret", true}
	o, err := decoder(r).Decode([]byte(`{"metadata":{"name":"a"},"data":{"a":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"Secret","apiVersion":"example.com/v1","metadata":{"name":"a"},"data":{"a":"b"}}`; textOf(o) != want {
		t.Errorf("body %s, want %s", textOf(o), want)
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range hostileStrings {
		f.Add("default", "db", "password", s)
		f.Add(s, s, s, "canary-"+s)
	}
	f.Fuzz(func(t *testing.T, namespace, name, field, value string) {
		if name == "" {
			return
		}
		metadata := map[string]any{"name": name, "namespace": namespace, "annotations": map[string]any{"n": value}}
		text, err := encode(map[string]any{"metadata": metadata, "data": map[string]any{field: b64(value)}, "stringData": map[string]any{field: value}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := decoder(secrets).Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Metadata   struct{ Annotations map[string]string }
			Data       map[string][]byte
			StringData map[string]string
		}
		if err := json.Unmarshal([]byte(textOf(o)), &s); err != nil {
			t.Fatal(err)
		}
		const length = len("hmac-sha256:") + 64
		for _, v := range s.Data {
			if len(v) != length {
				t.Errorf("data %q", v)
			}
		}
		for _, v := range s.StringData {
			if len(v) != length {
				t.Errorf("stringData %q", v)
			}
		}
		if v := s.Metadata.Annotations["n"]; value != "" && len(v) != length {
			t.Errorf("annotation %q", v)
		}
	})
}
