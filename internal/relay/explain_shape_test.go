package relay

import (
	"slices"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/explain"
)

// TestExplainShape: an explanation names the hashed fields of watched resources, and those
// that are published although they are known to hold secrets.
func TestExplainShape(t *testing.T) {
	x := explain.Explanation{Resources: []explain.Explained{
		{Name: "configmaps", Version: "v1", Kind: "ConfigMap", Namespaced: true, Watched: explain.Everywhere},
		{Name: "connectors.dex.coreos.com", Version: "v1", Kind: "Connector", Watched: explain.Nowhere},
		{Name: "tokens.management.cattle.io", Version: "v3", Kind: "Token", Watched: explain.Partly},
	}}
	known := []string{"configmaps.core:.data.release", "tokens.management.cattle.io:.token"}
	for name, tc := range map[string]struct {
		content          config.Content
		hashed, readable []string
	}{
		"by default":       {config.Content{HashKnown: true}, known, nil},
		"without the list": {config.Content{HashFields: config.Paths{"Token:.token", "pods:.spec"}}, []string{"Token:.token"}, known[:1]},
	} {
		got, err := explainShape(x, Config{Settings: config.Config{Content: tc.content}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.HashFields, tc.hashed) || !slices.Equal(got.ReadableFields, tc.readable) {
			t.Errorf("%s: hashed %q, readable %q", name, got.HashFields, got.ReadableFields)
		}
	}
}
