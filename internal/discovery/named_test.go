package discovery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// existing is an API server with a set of namespaces.
type existing struct {
	dynamic.NamespaceableResourceInterface
	names atomic.Pointer[[]string]
}

func (e *existing) have(names ...string) { e.names.Store(&names) }

func (e *existing) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return e
}

func (e *existing) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if !slices.Contains(*e.names.Load(), name) {
		return nil, apierrors.NewNotFound(NamespaceResource.GroupResource(), name)
	}
	return &unstructured.Unstructured{}, nil
}

// gets are the permissions of a user who may get namespaces but not list them.
type gets struct{}

func (gets) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "get"
	return review, nil
}

// TestNamespacesThatAreRemoved verifies that an included namespace that is removed counts as missing,
// even if another included namespace was missing before.
func TestNamespacesThatAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &existing{}
		on.have("a", "b")
		n := NewNamespaces(NamespaceSelection{Include: []string{"a", "b", "c"}})
		ctx, end := context.WithCancel(t.Context())
		running := Watcher{Logger: slog.New(slog.DiscardHandler)}.FindNamespaces(ctx, n, on, NewAccess(gets{}, nil, time.Now))
		missing := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after) // on the synctest clock
			synctest.Wait()
			if got := strings.Join(slices.Sorted(maps.Keys(n.Missing())), ","); got != want {
				t.Errorf("missing are %q, want %q", got, want)
			}
		}
		missing(0, "c")
		on.have("b")
		missing(time.Hour, "a,c")
		on.have("a", "b")
		missing(time.Minute, "c")
		end()
		running.Wait()
	})
}
