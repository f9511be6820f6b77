package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/nametest"
)

var secrets = event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}

// The values in secretJSON. Its data has them in Base64.
const (
	canary1 = "canary-hunter2"
	canary2 = "canary-tr0ub4dor"
	canary3 = "canary-s3cr3t"
)

var secretJSON = fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"Opaque","immutable":true,
	"metadata":{"name":"db","namespace":"default","uid":"6f1b","resourceVersion":"7","labels":{"app":"db","app.kubernetes.io/name":"db"},
		"annotations":{%[4]q:%[5]q,"kapp.k14s.io/original":%[5]q,"objectset.rio.cattle.io/applied":%[6]q,
			"note":"the password is %[1]s","encoded":"x-%[7]s","encoded-token":%[8]q,"json":" {}","helm.sh/chart":"kept","canary-name":"x"},
		"managedFields":[{"manager":"kubectl","fieldsV1":{"f:data":{"f:%[1]s":{}}}}]},
	"data":{"password":%[7]q,"empty":"","number":42,"nested":{"a":%[3]q},"list":[%[3]q],"not-base64":%[3]q,"null":null,"newline":"\n"},
	"stringData":{"token":%[2]q,"truth":true}}`,
	canary1, canary2, canary3, lastApplied, `{"data":{"password":"`+b64(canary1)+`"}}`, "H4sIAAAA"+strings.Repeat("canary+A/", 40), b64(canary1), b64(canary2))

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// checkNoCanary searches for the values in every form in which they may leak.
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
	for _, c := range []event.Change{
		{Type: event.Updated}, {Type: event.Updated, Truncated: true}, {Type: event.Deleted},
	} {
		c.Cause, c.Key, c.Resource, c.Observed, c.Object, c.Previous = event.CauseWatch, secrets.Key("default", "db"), secrets, observed, o, "6"
		m, err := event.Builder{Cluster: "prod-eu"}.Message(c)
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
		t.Fatalf("a subscriber cannot decode %s: %v", textOf(o), err)
	}
	if s.Type != "Opaque" || !s.Immutable || s.Metadata.Labels["app.kubernetes.io/name"] != "db" || s.Metadata.Annotations["helm.sh/chart"] != "kept" {
		t.Errorf("lost more than values: %s", textOf(o))
	}
	if len(s.Data) != 8 || len(s.StringData) != 2 || len(s.Metadata.Annotations) != 8 || len(s.Metadata.Labels) != 2 {
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
	for _, fields := range []map[string]string{s.Metadata.Labels, s.Metadata.Annotations} {
		for name, v := range fields {
			if public := name == "helm.sh/chart" || name == "app.kubernetes.io/name"; !public && (!hash.MatchString(name) || !hash.MatchString(v)) {
				t.Errorf("%s = %q, want hashes", name, v)
			}
		}
	}
}

// TestNothingIsLeftInMetadata verifies that no value stays in the metadata of a Secret, even if a
// search for the Secret's values would not find it there.
func TestNothingIsLeftInMetadata(t *testing.T) {
	for name, c := range map[string]struct{ metadata, value, leak string }{
		"a value with a newline":      {`"annotations":{"note":"initial password: hunter2"}`, "hunter2\n", "hunter2"},
		"a part of a value":           {`"annotations":{"registry":"robot / hunter2"}`, `{"auths":{"r":{"password":"hunter2"}}}`, "hunter2"},
		"the value before":            {`"annotations":{"previous-password":"hunter1"}`, "hunter2", "hunter1"},
		"a label":                     {`"labels":{"pw":"hunter2"}`, "hunter2", "hunter2"},
		"the name of an annotation":   {`"annotations":{"hunter2":"x"}`, "hunter2", "hunter2"},
		"the name of a label":         {`"labels":{"example.com/hunter2":"x"}`, "hunter2", "hunter2"},
		"hex":                         {`"annotations":{"x":"68756e74657232"}`, "hunter2", "68756e74657232"},
		"user and value":              {`"annotations":{"auth":"Basic ` + b64("admin:hunter2") + `"}`, "hunter2", b64("admin:hunter2")},
		"Base64 without padding":      {`"annotations":{"x":"` + strings.TrimRight(b64("hunter22"), "=") + `"}`, "hunter22", strings.TrimRight(b64("hunter22"), "=")},
		"a value that is no text":     {`"annotations":{"helm.sh/chart":["hunter2"]}`, "hunter2", "hunter2"},
		"what looks like a hash":      {`"annotations":{"x":"hmac-sha256:` + strings.Repeat("ab", 32) + `"}`, "hunter2", strings.Repeat("ab", 32)},
		"annotations of a wrong type": {`"annotations":"hunter2","labels":["hunter2"]`, "hunter2", "hunter2"},
	} {
		o, err := decoder(secrets).Decode([]byte(`{"metadata":{"name":"db","namespace":"default",` + c.metadata + `},"data":{"password":"` + b64(c.value) + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(textOf(o), c.leak) {
			t.Errorf("%s is published: %s", name, textOf(o))
		}
	}
}

// TestRedactionIsNoOracle verifies that the values of a Secret do not decide whether an annotation
// is hashed.
func TestRedactionIsNoOracle(t *testing.T) {
	var notes []string
	for n := range 100 {
		notes = append(notes, fmt.Sprintf(`"n%02d":"%02d"`, n, n))
	}
	o, err := decoder(secrets).Decode(fmt.Appendf(nil, `{"metadata":{"name":"db","annotations":{%s}},"data":{"pin":%q}}`, strings.Join(notes, ","), b64("73")))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(textOf(o), "hmac-sha256:"); got != 200 {
		t.Errorf("%d hashes in the annotations, want 200: %s", got, textOf(o))
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

// TestEmptySectionsStay verifies that a Secret without data stays without data.
func TestEmptySectionsStay(t *testing.T) {
	o, err := decoder(secrets).Decode([]byte(`{"metadata":{"name":"a"},"data":null,"stringData":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"apiVersion":"v1","data":null,"kind":"Secret","metadata":{"name":"a"},"stringData":{}}`; textOf(o) != want {
		t.Errorf("body %s, want %s", textOf(o), want)
	}
}

// TestRedactOnlyCoreSecrets verifies that a custom resource with the name secrets is not redacted.
func TestRedactOnlyCoreSecrets(t *testing.T) {
	r := event.Resource{Group: "example.com", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
	o, err := decoder(r).Decode([]byte(`{"metadata":{"name":"a"},"data":{"a":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"Secret","apiVersion":"example.com/v1","metadata":{"name":"a"},"data":{"a":"b"}}`; textOf(o) != want {
		t.Errorf("body %s, want %s", textOf(o), want)
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range nametest.Hostile() {
		f.Add("default", "db", "password", s)
		f.Add(s, s, s, "canary-"+s)
	}
	f.Fuzz(func(t *testing.T, namespace, name, field, value string) {
		if name == "" {
			return
		}
		metadata := map[string]any{"name": name, "namespace": namespace, "annotations": map[string]any{"n": value}}
		text, err := event.EncodeJSON(map[string]any{"metadata": metadata, "data": map[string]any{field: b64(value)}, "stringData": map[string]any{field: value}})
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
		for name, v := range s.Metadata.Annotations {
			if len(name) != length || len(v) != length {
				t.Errorf("annotation %q: %q", name, v)
			}
		}
	})
}
