package relay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/internal/status"
)

// TestNamespacesOfAResource verifies that the errors of one reason do not hide those of another,
// and that the number of errors in the document is bounded.
func TestNamespacesOfAResource(t *testing.T) {
	var s status.Resource
	addInformer(&s, health.Status{Namespace: "ok", State: health.Synced, Objects: 4})
	for i := range 10 {
		addInformer(&s, health.Status{Namespace: fmt.Sprintf("denied%d", i), State: health.Degraded, Reason: "forbidden", Failing: errors.New("no right")})
	}
	for i := range 10 {
		addInformer(&s, health.Status{Namespace: fmt.Sprintf("sick%d", i), State: health.Degraded, Reason: "failing", Failing: errors.New("no answer")})
	}
	if s.Namespaces != 21 || s.ForbiddenNamespaces != 10 || len(s.DegradedNamespaces) != 20 || s.Objects != 4 {
		t.Errorf("got %+v", s)
	}
	shown := map[string]int{}
	for _, e := range s.NamespaceErrors {
		shown[e.Reason+" "+e.Message]++
	}
	if len(shown) != 2 || shown["forbidden no right"] != status.MaxNamespaceErrors || shown["failing no answer"] != status.MaxNamespaceErrors {
		t.Errorf("got the errors %v", shown)
	}
}
