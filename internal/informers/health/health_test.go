package health

import (
	"fmt"
	"testing"

	"github.com/kuberelay/kuberelay/internal/event"
)

// TestReadyNamesAResourceOnce verifies that the error names each resource once, however many namespaces
// have an informer of their own. In an earlier version, one resource could fill the whole error.
func TestReadyNamesAResourceOnce(t *testing.T) {
	var r Report
	for _, resource := range []string{"configmaps", "pods", "secrets", "services"} {
		for _, namespace := range []string{"a", "b", "c"} {
			st := Status{Resource: event.Resource{Resource: resource, Namespaced: true}, Namespace: namespace, State: Starting}
			if resource == "pods" && namespace != "a" { // errors name the namespace
				st.Failing = fmt.Errorf("get namespaces/%s/pods: away", namespace)
			}
			r = append(r, st)
		}
	}
	const want = "not synced: configmaps, pods (get namespaces/b/pods: away), secrets and 1 more"
	if err := r.Ready(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
