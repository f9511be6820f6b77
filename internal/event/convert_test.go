package event

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func decode(t *testing.T, s string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(s), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestFromUnstructured(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{
			"as it is",
			`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"},"spec":{"n":1.5,"a":["<&>",null]}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"a":["<&>",null],"n":1.5}}`,
		}, {
			"item of a list",
			`{"metadata":{"name":"web"}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}`,
		}, {
			"managedFields",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","managedFields":[{"manager":"m"}]}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}`,
		}, {
			"last-applied among others",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"a":"b","` + lastApplied + `":"{}"}}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"a":"b"},"name":"web"}}`,
		}, {
			"last-applied alone",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"` + lastApplied + `":"{}"}}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}`,
		}, {
			"long annotation",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"a":"{` + strings.Repeat("x", 300) + `"}}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"a":"{` + strings.Repeat("x", 300) + `"},"name":"web"}}`,
		}, {
			"data of another type",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"data":{"a":"b"}}`,
			`{"apiVersion":"apps/v1","data":{"a":"b"},"kind":"Deployment","metadata":{"name":"web"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := decode(t, tt.in)
			o, err := NewConverter([]byte("key")).FromUnstructured(deployments, u)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(o.Body); got != tt.want {
				t.Errorf("body:\n got %s\nwant %s", got, tt.want)
			}
			if want := decode(t, tt.in); !reflect.DeepEqual(u, want) {
				t.Errorf("the object was changed:\n got %v\nwant %v", u, want)
			}
			if o.APIVersion != "apps/v1" || o.Kind != "Deployment" || o.Name != "web" {
				t.Errorf("FromUnstructured = %+v", o)
			}
		})
	}
}

func TestFromUnstructuredMetadata(t *testing.T) {
	u := decode(t, `{"apiVersion":"apps/v1beta1","kind":"Odd","metadata":{"name":"web","namespace":"default","uid":"6f1b","resourceVersion":"12"}}`)
	o, err := NewConverter(nil).FromUnstructured(deployments, u)
	if err != nil {
		t.Fatal(err)
	}
	o.Body = nil
	want := Object{APIVersion: "apps/v1beta1", Kind: "Odd", Namespace: "default", Name: "web", UID: "6f1b", ResourceVersion: "12"}
	if !equalObjects(*o, want) {
		t.Errorf("FromUnstructured = %+v, want %+v", *o, want)
	}
}

// Metadata that API servers would not serve must not crash the forwarder.
func TestFromUnstructuredOddMetadata(t *testing.T) {
	tests := map[string]struct {
		in string
		ok bool
	}{
		"no metadata":         {`{}`, false},
		"metadata is text":    {`{"metadata":"canary"}`, false},
		"no name":             {`{"metadata":{"namespace":"canary"}}`, false},
		"name is a number":    {`{"metadata":{"name":1}}`, false},
		"annotations is text": {`{"metadata":{"name":"a","annotations":"b"}}`, true},
		"annotation is a map": {`{"metadata":{"name":"a","annotations":{"a":{}}}}`, true},
		"uid is a number":     {`{"metadata":{"name":"a","uid":1}}`, true},
	}
	for name, tt := range tests {
		for _, r := range []Resource{pods, secrets} {
			t.Run(name+" "+r.Resource, func(t *testing.T) {
				_, err := NewConverter(nil).FromUnstructured(r, decode(t, tt.in))
				if (err == nil) != tt.ok {
					t.Errorf("err = %v, want none: %t", err, tt.ok)
				}
				if err != nil && strings.Contains(err.Error(), "canary") {
					t.Errorf("the error holds the object's content: %v", err)
				}
			})
		}
	}
	if _, err := NewConverter(nil).FromUnstructured(pods, nil); err == nil {
		t.Error("FromUnstructured(nil), want an error")
	}
	u := decode(t, `{"metadata":{"name":"a"}}`)
	u.Object["spec"] = math.NaN()
	if _, err := NewConverter(nil).FromUnstructured(pods, u); err == nil {
		t.Error("FromUnstructured of what has no JSON form, want an error")
	}
}

// Whatever order the decoder's map has, the bytes are the same.
func TestFromUnstructuredIsDeterministic(t *testing.T) {
	c := NewConverter([]byte("key"))
	var first string
	for range 20 {
		u := decode(t, secretJSON)
		u.Object = maps.Clone(u.Object)
		o, err := c.FromUnstructured(secrets, u)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(o.Body)
		}
		if string(o.Body) != first {
			t.Fatalf("got %s\nthen %s", first, o.Body)
		}
	}
}
