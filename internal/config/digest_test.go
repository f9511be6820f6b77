package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestDigests verifies that the digest of a setting depends on its value and the salt, and not on
// the order of a list. A setting that does not determine the contents of the bus has no digest.
func TestDigests(t *testing.T) {
	load := func(t *testing.T, set map[string]string) Config {
		t.Helper()
		for name, value := range set {
			t.Setenv(Prefix+name, value)
		}
		c, err := Load(Forwarding)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	base := load(t, map[string]string{"RESOURCES": "pods,services", "NAMESPACES": "a"}).Digests("uid")
	if again := load(t, map[string]string{"RESOURCES": " services, pods,pods", "LOG_LEVEL": "debug", "WORKERS": "9", "NATS_STREAM": "X"}).Digests("uid"); !maps.Equal(base, again) {
		t.Errorf("got %v, then %v", base, again)
	}
	for name, value := range map[string]string{
		"RESOURCES": "pods", "EXCLUDE_RESOURCES": "nodes", "NAMESPACES": "a,b", "EXCLUDE_NAMESPACES": "c", "LABEL_SELECTOR": "a=b", "FIELD_SELECTOR": "metadata.name=a",
		"FILTER": "true", "DROP_FIELDS": "*:.status", "HASH_FIELDS": "pods:.spec.nodeName", "HASH_KNOWN_FIELDS": "false", "FOLLOW": "ownerReferences",
		"DATA": "change", "CONTENT_MODE": "structured", "ON_DESELECT": "publish", "NATS_HISTORY": "9", "DELETE_RETENTION": "1h",
	} {
		t.Run(name, func(t *testing.T) {
			got := load(t, map[string]string{name: value})
			if differ := got.Differing("uid", base); !slices.Equal(differ, []string{Prefix + name}) {
				t.Errorf("of %s=%s, these differ: %v", name, value, differ)
			}
			if differ := got.Differing("uid", map[string]string{"KUBERELAY_LATER": "01"}); len(differ) > 0 {
				t.Errorf("with digests of another release, these differ: %v", differ)
			}
		})
	}
	salted := load(t, nil).Digests("another")
	for name, digest := range base {
		if salted[name] == digest || len(digest) != 2*digestBytes || strings.Contains(digest, "pods") {
			t.Errorf("%s has the digest %s with both salts", name, digest)
		}
	}
}
