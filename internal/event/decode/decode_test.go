package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

var (
	observed    = time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.FixedZone("CET", 3600))
	deployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	pods        = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
)

func decoder(r event.Resource) *Decoder {
	return NewConverter([]byte("key"), "").Decoder(r, nil, nil, Shape{})
}

func textOf(o *event.Object) string {
	text, err := o.Body.JSON()
	if err != nil {
		panic(err)
	}
	return string(text)
}

func equalObjects(a, b event.Object) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name &&
		a.UID == b.UID && a.ResourceVersion == b.ResourceVersion && textOf(&a) == textOf(&b)
}

func TestDecode(t *testing.T) {
	const head = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{`
	long := `"a":"{` + strings.Repeat("x", 300) + `"`
	for name, tt := range map[string]struct{ in, want string }{
		"as it is": {
			`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"},"spec":{"n":1.50,"z":["<&>\u003c",null],"a":{}}}`, "",
		},
		"with white space":                       {" {\n \"metadata\" : { \"name\" : \"web\" } , \"kind\":\"Deployment\",\"apiVersion\":\"apps/v1\" }", "{\n \"metadata\" : { \"name\" : \"web\" } , \"kind\":\"Deployment\",\"apiVersion\":\"apps/v1\" }"},
		"item of a list":                         {`{"metadata":{"name":"web"},"spec":1}`, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"},"spec":1}`},
		"item with a kind only":                  {`{"kind":"Odd","metadata":{"name":"web"}}`, `{"apiVersion":"apps/v1","kind":"Odd","metadata":{"name":"web"}}`},
		"managedFields last":                     {head + `"name":"web","managedFields":[{"manager":"m"}]}}`, head + `"name":"web"}}`},
		"managedFields first":                    {head + `"managedFields":[{"manager":"m"}],"name":"web"}}`, head + `"name":"web"}}`},
		"managedFields in the middle":            {head + `"a":1,"managedFields":[{"manager":"m"}] ,"name":"web"}}`, head + `"a":1 ,"name":"web"}}`},
		"managedFields with an escaped name":     {head + `"managed\u0046ields":[],"name":"web"}}`, head + `"name":"web"}}`},
		"managedFields elsewhere":                {head + `"name":"web"},"managedFields":1,"spec":{"metadata":{"managedFields":2}}}`, ""},
		"last-applied among others":              {head + `"annotations":{"a":"b","` + lastApplied + `":"{}","c":"d"},"name":"web"}}`, head + `"annotations":{"a":"b","c":"d"},"name":"web"}}`},
		"last-applied first":                     {head + `"annotations":{"` + lastApplied + `":"{}","c":"d"},"name":"web"}}`, head + `"annotations":{"c":"d"},"name":"web"}}`},
		"last-applied alone":                     {head + `"annotations":{"` + lastApplied + `":"{}"},"name":"web"}}`, head + `"name":"web"}}`},
		"last-applied alone, last":               {head + `"name":"web","annotations":{"` + lastApplied + `":"{}"}}}`, head + `"name":"web"}}`},
		"both first, one after the other":        {head + `"annotations":{"` + lastApplied + `":"{}"},"managedFields":[],"name":"web"}}`, head + `"name":"web"}}`},
		"both last, one after the other":         {head + `"name":"web","annotations":{"` + lastApplied + `":"{}"},"managedFields":[]}}`, head + `"name":"web"}}`},
		"managedFields, then some of those":      {head + `"managedFields":[],"annotations":{"` + lastApplied + `":"{}","c":"d"},"name":"web"}}`, head + `"annotations":{"c":"d"},"name":"web"}}`},
		"annotations that were empty":            {head + `"annotations":{},"name":"web"}}`, ""},
		"annotations of another form":            {head + `"annotations":"x","name":"web"}}`, ""},
		"annotations that are null":              {head + `"annotations":null,"name":"web","uid":null}}`, ""},
		"long annotation":                        {head + `"annotations":{` + long + `},"name":"web"}}`, ""},
		"data of another type are not redacted":  {head + `"name":"web"},"data":{"a":"b"}}`, ""},
		"a field whose name differs in its case": {head + `"name":"web","Name":"evil","UID":"x"},"Metadata":{"name":"evil"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := decoder(deployments).Decode([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				tt.want = tt.in
			}
			if got := textOf(o); got != tt.want {
				t.Errorf("body:\n got %s\nwant %s", got, tt.want)
			}
			if o.APIVersion != "apps/v1" || o.Kind != "Deployment" && o.Kind != "Odd" || o.Name != "web" || o.UID != "" {
				t.Errorf("Decode = %+v", o)
			}
		})
	}
}

func TestDecodeMetadata(t *testing.T) {
	d := decoder(deployments)
	text := []byte(`{"apiVersion":"apps/v1beta1","kind":"Odd","metadata":{"name":"web\u002d1","namespace":"default","uid":"6f1b","resourceVersion":"12"}}`)
	want := event.Object{APIVersion: "apps/v1beta1", Kind: "Odd", Namespace: "default", Name: "web-1", UID: "6f1b", ResourceVersion: "12", Body: event.JSON(bytes.Clone(text))}
	o, err := d.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	clear(text) // the caller reuses its buffer
	if _, err := d.Decode([]byte(`{"metadata":{"name":"another-name","namespace":"elsewhere","uid":"x"}}`)); err != nil {
		t.Fatal(err)
	}
	if !equalObjects(*o, want) {
		t.Errorf("Decode = %+v, want %+v", *o, want)
	}
}

// TestDecodeOddMetadata verifies that invalid metadata, which API servers do not serve, neither
// crashes the forwarder nor becomes another object.
func TestDecodeOddMetadata(t *testing.T) {
	for name, in := range map[string]string{
		"empty":                 ``,
		"not an object":         `[]`,
		"null":                  `null`,
		"no metadata":           `{}`,
		"metadata is text":      `{"metadata":"canary"}`,
		"metadata is null":      `{"metadata":null}`,
		"no name":               `{"metadata":{"namespace":"canary"}}`,
		"name is a number":      `{"metadata":{"name":1}}`,
		"name is empty":         `{"metadata":{"name":"","uid":"canary"}}`,
		"uid is a number":       `{"metadata":{"name":"canary","uid":1}}`,
		"two names":             `{"metadata":{"name":"canary","name":"b"}}`,
		"metadata twice":        `{"metadata":{"name":"canary"},"metadata":{"name":"b"}}`,
		"metadata half, twice":  `{"metadata":{"uid":"canary"},"metadata":{"name":"b"}}`,
		"kind is null":          `{"kind":null,"metadata":{"name":"canary"}}`,
		"apiVersion is null":    `{"metadata":{"name":"canary"},"apiVersion":null}`,
		"kind twice":            `{"kind":"A","kind":"B","metadata":{"name":"canary"}}`,
		"cut off":               `{"metadata":{"name":"canary"}`,
		"cut off in metadata":   `{"metadata":{"name":"canary"`,
		"something after it":    `{"metadata":{"name":"canary"}} {}`,
		"not JSON in the depth": `{"metadata":{"name":"canary"},"spec":{"a":[1,]}}`,
		"not JSON, cut out":     `{"metadata":{"name":"canary","managedFields":[{"a" 1}]}}`,
	} {
		for _, r := range []event.Resource{pods, secrets} {
			t.Run(name+" "+r.Resource, func(t *testing.T) {
				o, err := decoder(r).Decode([]byte(in))
				if err == nil {
					t.Fatalf("got %+v, want an error", o)
				}
				if strings.Contains(err.Error(), "canary") {
					t.Errorf("the error contains the content of the object: %v", err)
				}
			})
		}
	}
	if _, err := decoder(pods).Decode([]byte(`{"metadata":{"name":"a"}`)); !errors.Is(err, jsonscan.ErrSyntax) {
		t.Errorf("cut off: %v", err)
	}
}

// TestDecodeKeepsSelectedBodiesOnly verifies that an object has only metadata if keeps rejects its
// namespace.
func TestDecodeKeepsSelectedBodiesOnly(t *testing.T) {
	d := NewConverter(nil, "").Decoder(pods, event.NewPacker(), func(namespace string) bool { return namespace == "a" }, Shape{})
	for _, namespace := range []string{"a", "b", ""} {
		o, err := d.Decode([]byte(`{"metadata":{"name":"x","namespace":"` + namespace + `","uid":"u"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if o.Body.None() != (namespace != "a") || o.Namespace != namespace || o.UID != "u" {
			t.Errorf("%q: got %+v", namespace, o)
		}
	}
}

// FuzzDecode compares Decode with encoding/json. The metadata must be equal, and so must the object
// without the parts that Decode cuts out.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"a","uid":"u","resourceVersion":"1","managedFields":[{"a":[1,"]"]}]},"spec":{"a":"\"}"}}`,
		`{"metadata":{"managedFields":[],"annotations":{"` + lastApplied + `":"{\"a\":1}"},"name":"web"}}`,
		`{"metadata":{"annotations":{"a":"b","` + lastApplied + `":"","c":null},"name":"w\u0065b","labels":{}},"status":null}`,
		`{"m\u0065tadata":{"nam\u0065":"web","\u006danagedFields":1}}`, ` { "metadata" : { "name" : "x" , "managedFields" : 1 } } `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := decoder(deployments).Decode(bytes.Clone(text))
		var want map[string]any
		if json.Unmarshal(text, &want) != nil || want == nil {
			if err == nil {
				t.Fatalf("%q is not an object, and became %+v", text, o)
			}
			return
		}
		if err != nil || !utf8.Valid(text) {
			return // encoding/json accepts duplicate names, and replaces invalid UTF-8
		}
		metadata, _ := want["metadata"].(map[string]any)
		get := func(from map[string]any, name, otherwise string) string {
			if s, ok := from[name].(string); ok {
				return s
			}
			return otherwise
		}
		expected := event.Object{
			APIVersion: get(want, "apiVersion", "apps/v1"), Kind: get(want, "kind", "Deployment"), Namespace: get(metadata, "namespace", ""),
			Name: get(metadata, "name", ""), ResourceVersion: get(metadata, "resourceVersion", ""),
		}
		if got := (event.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}); !equalObjects(got, expected) || string(o.UID) != get(metadata, "uid", "") {
			t.Errorf("%q: got %+v, want %+v", text, got, expected)
		}
		strip(metadata)
		for name, value := range map[string]string{"apiVersion": expected.APIVersion, "kind": expected.Kind} {
			if _, ok := want[name]; !ok {
				want[name] = value
			}
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(textOf(o)), &got); err != nil {
			t.Fatalf("%q: the body %q is not JSON", text, textOf(o))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: the body is\n%v, want\n%v", text, got, want)
		}
	})
}

// strip removes the metadata that repeats the object's content.
func strip(metadata map[string]any) {
	delete(metadata, "managedFields")
	if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
		if delete(annotations, lastApplied); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
}
