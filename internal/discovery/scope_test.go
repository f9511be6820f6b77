package discovery

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// TestScopesWithoutAReview verifies that a failed review changes nothing, for example while the API
// server is unavailable. An earlier version then replaced the watches of single namespaces with one
// watch of all namespaces, for which access was denied, and started watches in namespaces to which
// access was denied. So /readyz failed, and with the one watch, everything was listed again.
func TestScopesWithoutAReview(t *testing.T) {
	pods := event.Resource{Version: "v1", Resource: "pods", Namespaced: true}
	some, all := []string{"a", "b", "c"}, []string{""}
	no := apierrors.NewForbidden(pods.GroupResource(), "", nil)
	denied := func(a authorizationv1.ResourceAttributes) (bool, error) {
		return a.Namespace == "a" || a.Namespace == "b", nil
	}
	failed := func(authorizationv1.ResourceAttributes) (bool, error) { return false, errors.New("no response") }
	for name, c := range map[string]struct {
		access       controlplanetest.Reviews
		include      []string
		now          Coverage
		want, denied []string
	}{
		"at the start":                        {failed, some, Coverage{}, all, nil},
		"one watch":                           {failed, some, Coverage{Everywhere: true, Working: true}, all, nil},
		"one watch that is forbidden":         {failed, some, Coverage{Everywhere: true}, all, nil},
		"separate watches":                    {failed, some, Coverage{Separately: true}, some, nil},
		"separate watches, and a denial":      {denied, some, Coverage{Separately: true}, some[:2], some[2:]},
		"one watch that is forbidden, denied": {denied, some, Coverage{Everywhere: true}, some[:2], some[2:]},
		"denied in one namespace":             {failed, some, Coverage{Separately: true, Denied: map[string]error{"c": no}}, some[:2], some[2:]},
		"granted in that namespace":           {denied, some, Coverage{Separately: true, Denied: map[string]error{"b": no}}, some[:2], some[2:]},
		"denied in each namespace":            {failed, some, Coverage{Denied: map[string]error{"a": no, "b": no, "c": no}}, nil, some},
		"denied in all namespaces":            {failed, nil, Coverage{Denied: map[string]error{"": no}}, nil, all},
	} {
		n := NewNamespaces(NamespaceSelection{Include: c.include, MaxSeparate: 1})
		got, refused := Scopes(t.Context(), pods, n, NewAccess(c.access, nil, time.Now), c.now)
		if !slices.Equal(got, c.want) || !slices.Equal(slices.Sorted(maps.Keys(refused)), c.denied) {
			t.Errorf("%s: got %q, denied %v; want %q, denied %q", name, got, refused, c.want, c.denied)
		}
	}
}
