package verify

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/verify/replica"
)

// TestAnEventInAnotherVersionOfTheAPI verifies that verify compares an event in the API version in
// which it was published, even if the cluster now prefers another. verify skips the comparison of
// the data only if the cluster no longer serves that version.
func TestAnEventInAnotherVersionOfTheAPI(t *testing.T) {
	gr := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	v1 := resource{GroupVersionResource: gr.WithVersion("v1"), Kind: "Widget"}
	old := resource{GroupVersionResource: gr.WithVersion("v1alpha1"), Kind: "Widget"}
	s := selection{versions: map[schema.GroupVersionResource]resource{v1.GroupVersionResource: v1, old.GroupVersionResource: old}}
	for api, want := range map[string]struct {
		resource
		served bool
	}{
		"":                     {v1, true},
		"example.com/v1":       {v1, true},
		"example.com/v1alpha1": {old, true},
		"example.com/v1beta1":  {v1, false},
	} {
		if got, served := s.as(v1, replica.Event{API: api}); got != want.resource || served != want.served {
			t.Errorf("%q: got %v, served %v; want %v", api, got.Version, served, want)
		}
	}

	settle, began := 2500*time.Millisecond, time.Unix(0, 0)
	for _, c := range []struct {
		name         string
		cluster, bus string // versions of the API
		data         string // of the bus; that of the cluster is "x"
		unread       bool
		want         verdict
	}{
		{"in the bus's version, alike", "v1alpha1", "v1alpha1", "x", false, fine},
		{"in the bus's version, different", "v1alpha1", "v1alpha1", "y", false, undecided},
		{"not in the bus's version, which is served", "v1", "v1alpha1", "y", false, undecided},
		{"the bus's version is not served", "v1", "v1alpha1", "y", true, fine},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := observation{first: present("A 5 x"), bus: onBus("A 5 " + c.data), unread: c.unread}
			g.first.api, g.bus.API = c.cluster, c.bus
			g.cluster = g.first
			var judged candidate
			if got := judged.judge(g, began, settle); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := judged.judge(g, began.Add(settle), settle); c.want == undecided && got != wrong {
				t.Errorf("after the settle time: got %v, want wrong", got)
			}
		})
	}
}
