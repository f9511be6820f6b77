package discovery

import (
	"errors"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// TestScopesWithoutAReview verifies that working watches of single namespaces continue if the review
// of the access to all namespaces fails, for example because the API server is unavailable. An earlier
// version replaced them with one watch of all namespaces, for which access was denied, so /readyz
// failed, and everything was listed again.
func TestScopesWithoutAReview(t *testing.T) {
	pods := event.Resource{Version: "v1", Resource: "pods", Namespaced: true}
	some, all := []string{"a", "b", "c"}, []string{""}
	denied := func(a authorizationv1.ResourceAttributes) (bool, error) { return a.Namespace != "", nil }
	failed := func(authorizationv1.ResourceAttributes) (bool, error) { return false, errors.New("no response") }
	for name, c := range map[string]struct {
		access controlplanetest.Reviews
		now    Coverage
		want   []string
	}{
		"at the start":                        {failed, Coverage{}, all},
		"one watch":                           {failed, Coverage{Everywhere: true, Working: true}, all},
		"one watch that is forbidden":         {failed, Coverage{Everywhere: true}, all},
		"separate watches":                    {failed, Coverage{Separately: true}, some},
		"separate watches, and a denial":      {denied, Coverage{Separately: true}, some},
		"one watch that is forbidden, denied": {denied, Coverage{Everywhere: true}, some},
	} {
		n := NewNamespaces(NamespaceSelection{Include: some, MaxSeparate: 1})
		got, refused := Scopes(t.Context(), pods, n, NewAccess(c.access, nil, time.Now), c.now)
		if !slices.Equal(got, c.want) || len(refused) > 0 {
			t.Errorf("%s: got %q, denied %v; want %q", name, got, refused, c.want)
		}
	}
}
