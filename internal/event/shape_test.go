package event

import (
	"testing"
)

var secretsResource = Resource{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}

const someSecret = `{"metadata":{"name":"s","namespace":"d","uid":"u","resourceVersion":"1"},"data":{"password":"aHVudGVyMg=="}}`

// TestShapedSecretWithoutAKey goes by its version: hashes whose key is made up are others
// after a restart, and so would the digest be.
func TestShapedSecretWithoutAKey(t *testing.T) {
	shape := Shape{Project: func(map[string]any) bool { return true }}
	for name, c := range map[string]struct {
		key  []byte
		want bool
	}{"with a key": {[]byte("0123456789abcdef"), true}, "without": {nil, false}} {
		o, err := NewConverter(c.key).Decoder(secretsResource, nil, nil, shape).Decode([]byte(someSecret))
		if err != nil {
			t.Fatal(err)
		}
		if !o.Digest.None() != c.want || !o.Cut {
			t.Errorf("%s: the digest is %q, cut %v", name, o.Digest, o.Cut)
		}
	}
	o, err := NewConverter(nil).Decoder(pods, nil, nil, shape).Decode([]byte(someSecret))
	if err != nil || o.Digest.None() {
		t.Errorf("what is no Secret has no digest without a key: %v", err)
	}
}

// TestShapeOfNothing keeps who an object is, and no more.
func TestShapeOfNothing(t *testing.T) {
	o, err := NewConverter(nil).Decoder(pods, NewPacker(), nil, Shape{None: true}).Decode([]byte(someSecret))
	if err != nil || !o.Unselected || !o.Body.None() || o.Name != "s" || o.ResourceVersion != "1" {
		t.Errorf("got %+v, %v", o, err)
	}
}
