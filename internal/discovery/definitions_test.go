package discovery

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestRedefinition verifies that a redefinition concerns exactly the resources that the API server
// may serve differently.
func TestRedefinition(t *testing.T) {
	state := func(name, uid, version string, generation int64) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version, Generation: generation}}
	}
	widgets := event.Resource{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
	for name, c := range map[string]struct {
		of     schema.GroupVersionResource
		old, o any
		want   bool
	}{
		"another schema":                   {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "A", "2", 2), true},
		"made anew":                        {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "B", "2", 1), true},
		"another status":                   {DefinitionResource, state("widgets.example.com", "A", "1", 1), state("widgets.example.com", "A", "2", 1), false},
		"another definition":               {DefinitionResource, state("gadgets.example.com", "A", "1", 1), state("gadgets.example.com", "A", "2", 2), false},
		"of another group":                 {DefinitionResource, state("widgets.example.org", "A", "1", 1), state("widgets.example.org", "A", "2", 2), false},
		"an APIService":                    {APIServiceResource, state("v1.example.com", "A", "1", 0), state("v1.example.com", "A", "2", 0), true},
		"a resync of an APIService":        {APIServiceResource, state("v1.example.com", "A", "1", 0), state("v1.example.com", "A", "1", 0), false},
		"an APIService of another version": {APIServiceResource, state("v2.example.com", "A", "1", 0), state("v2.example.com", "A", "2", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := redefinition(c.of, c.old, c.o)
			if got := ok && r.Concerns(widgets); got != c.want {
				t.Errorf("listed again: %v, want %v", got, c.want)
			}
		})
	}
}
