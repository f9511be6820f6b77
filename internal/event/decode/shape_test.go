package decode

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

var secretsResource = event.Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}

const someSecret = `{"metadata":{"name":"s","namespace":"d","uid":"u","resourceVersion":"1"},"data":{"password":"aHVudGVyMg=="}}`

// TestDigestWithoutAKey verifies the digests of objects with hashed fields if no redaction key is
// set. The hashes then change with each start, but the digest stays the same, so a restart
// publishes nothing. The digest changes when another field is hashed, and the forwarder then
// publishes the object again.
func TestDigestWithoutAKey(t *testing.T) {
	digest := func(r event.Resource, s Shape, text string) event.Digest {
		t.Helper()
		o, err := NewConverter(nil, "").Decoder(r, nil, nil, s).Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o.Digest
	}
	hash := func(fields ...string) Shape {
		return Shape{Project: func(object map[string]any, hash Hash) bool {
			for _, field := range fields {
				object[field] = hash([]string{field}, object[field])
			}
			return false
		}}
	}
	const pod = `{"metadata":{"name":"s","namespace":"d","uid":"u","resourceVersion":"1"},"a":"1","b":"2"}`
	dropping := hash("a")
	dropping.Drops = true
	for name, c := range map[string]struct {
		r    event.Resource
		s    Shape
		text string
	}{
		"a Secret":             {secretsResource, Shape{}, someSecret},
		"a Secret with labels": {secretsResource, Shape{}, strings.Replace(someSecret, `"name"`, `"labels":{"b":"1","a":"2","c":"3"},"name"`, 1)},
		"a Secret, shaped":     {secretsResource, dropping, someSecret},
		"a pod":                {pods, hash("a"), pod},
		"a pod, shaped":        {pods, dropping, pod},
	} {
		is := digest(c.r, c.s, c.text)
		if is.None() || is.Projected() {
			t.Errorf("%s: the digest is %q, want 16 digits", name, is)
		}
		if again := digest(c.r, c.s, c.text); again != is {
			t.Errorf("%s: the digest is %s, and %s after a restart", name, is, again)
		}
	}
	if digest(pods, hash("a"), pod) == digest(pods, hash("a", "b"), pod) {
		t.Error("one more hashed field has the same digest")
	}
}

// TestShapeOfNothing verifies that an object keeps only its identity if nothing is published.
func TestShapeOfNothing(t *testing.T) {
	o, err := NewConverter(nil, "").Decoder(pods, event.NewPacker(), nil, Shape{None: true}).Decode([]byte(someSecret))
	if err != nil || !o.Unselected || !o.Body.None() || o.Name != "s" || o.ResourceVersion != "1" {
		t.Errorf("got %+v, %v", o, err)
	}
}
