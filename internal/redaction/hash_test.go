package redaction

import (
	"strings"
	"testing"
)

var of = Object{Group: "g", Resource: "r", Namespace: "ns", Name: "name"}

func TestHashShowsChangesAndNothingElse(t *testing.T) {
	key := func(key, cluster string) *Key { return NewKey([]byte(key), cluster) }
	hash := func(o Object, value any, path ...string) string { return key("key", "c").Hash(o, path, value) }
	base := hash(of, "value", "data", "field")
	if again := hash(of, "value", "data", "field"); again != base {
		t.Errorf("the same value is hashed as %s, then as %s", base, again)
	}
	seen := map[string]string{base: "the value"}
	for name, got := range map[string]string{
		"another value":            hash(of, "value2", "data", "field"),
		"another field":            hash(of, "value", "data", "field2"),
		"another section":          hash(of, "value", "stringData", "field"),
		"another name":             hash(Object{"g", "r", "ns", "name2"}, "value", "data", "field"),
		"another namespace":        hash(Object{"g", "r", "ns2", "name"}, "value", "data", "field"),
		"another resource":         hash(Object{"g", "r2", "ns", "name"}, "value", "data", "field"),
		"another group":            hash(Object{"g2", "r", "ns", "name"}, "value", "data", "field"),
		"another cluster":          key("key", "c2").Hash(of, []string{"data", "field"}, "value"),
		"another key":              key("key2", "c").Hash(of, []string{"data", "field"}, "value"),
		"no key":                   NewKey(nil, "c").Hash(of, []string{"data", "field"}, "value"),
		"an empty key":             NewKey([]byte{}, "c").Hash(of, []string{"data", "field"}, "value"),
		"names moved by one":       hash(Object{"g", "r", "nsn", "ame"}, "value", "data", "field"),
		"value moved to the path":  hash(of, "alue", "data", "fieldv"),
		"a longer path":            hash(of, "value", "data", "field", "text"),
		"a shorter path":           hash(of, "value", "datafield"),
		"JSON of the same letters": hash(of, []any{"value"}, "data", "field"),
	} {
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[got] = name
		if !IsHash(got) {
			t.Errorf("%s: %q is no hash", name, got)
		}
	}
	if hash(of, "42", "f") == hash(of, 42, "f") {
		t.Error(`"42" and 42 have the same hash`)
	}
}

// TestHashVector verifies that the hash algorithm stays the same. Hashes are on buses and in
// checkpoints, so another algorithm would show every value as changed; see docs/upgrading.md.
func TestHashVector(t *testing.T) {
	got := NewKey([]byte("key"), "prod").Hash(Object{"", "secrets", "ns", "name"}, []string{"data", "field"}, "value")
	const want = "hmac-sha256:4025b79c428d88e0d7453caff6d76ec621d10463c90caf7156292023d83581d3"
	if got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
}

func TestMasked(t *testing.T) {
	hash := func() string { return NewKey(nil, "").Hash(of, nil, "v") }
	text := func() string {
		secret := map[string]any{"data": map[string]any{"a": "x", "b": "y"}, "stringData": map[string]any{"c": hash()}}
		(&Redactor{Key: NewKey(nil, ""), Of: of}).SecretData(secret)
		return encode(secret) + hash()
	}
	a, b := text(), text()
	if a == b || string(Masked([]byte(a))) != string(Masked([]byte(b))) {
		t.Errorf("%s and %s differ in more than hashes", a, b)
	}
	if strings.Count(string(Masked([]byte(a))), prefix) != 4 {
		t.Errorf("the places of hashes are not left: %s", Masked([]byte(a)))
	}
}

// TestAgain verifies that in a state from the bus, hashes stay and all other values are hashed.
func TestAgain(t *testing.T) {
	secret := func() map[string]any {
		return map[string]any{
			"metadata":   map[string]any{"labels": map[string]any{"team": "a", "helm.sh/chart": "b"}, "annotations": map[string]any{"note": "c"}},
			"data":       map[string]any{"a": "eA==", "bad": 7},
			"stringData": map[string]any{"b": "y"},
		}
	}
	redact := func(secret map[string]any, key string, again bool) *Redactor {
		r := &Redactor{Key: NewKey([]byte(key), "c"), Of: Object{Resource: "secrets", Name: "s"}, Again: again}
		r.SecretData(secret)
		r.SecretMetadata(secret)
		return r
	}
	once := secret()
	if r := redact(once, "key", true); !r.Hashed() {
		t.Fatal("nothing is hashed")
	}
	text := encode(once)
	if r := redact(once, "another key", true); r.Hashed() || encode(once) != text {
		t.Errorf("hashed again:\n%s\n%s", text, encode(once))
	}
	if r := redact(once, "key", false); !r.Hashed() || encode(once) == text {
		t.Error("in an object of the cluster, a value that looks like a hash was not hashed")
	}
	if strings.Contains(text, "team") || !strings.Contains(text, `"helm.sh/chart":"b"`) {
		t.Errorf("labels: %s", text)
	}
}
