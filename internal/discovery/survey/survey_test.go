package survey

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestAGroupFails verifies that a selector keeps the resource that it selected, first while the
// discovery of its group fails, and then while discovery does not show the resource. An earlier
// version reported such a selector as one that matches nothing, resolved it to a resource of the
// same name in another group, and ended the watch when the failure was over.
func TestAGroupFails(t *testing.T) {
	cluster, missed := discoverytest.Cluster(), map[schema.GroupResource]int{}
	s := Survey{
		Selection: discovery.Selection{Include: []string{"widgets", "scroll"}},
		Refused:   func(schema.GroupResource) bool { return false }, Missing: func(gr schema.GroupResource, _ error) { missed[gr]++ },
	}
	widgets, scrolls := schema.GroupResource{Group: "example.com", Resource: "widgets"}, schema.GroupResource{Group: "apps", Resource: "scrolls"}
	var before *Answer
	watched := map[schema.GroupResource]Plan{}
	for _, step := range []struct {
		name   string
		serves discoverytest.Discovery
	}{
		{"everything is served", cluster},
		{"both groups fail", cluster.Failing("example.com/v1").Failing("example.com/v1alpha1").Failing("apps/v1beta1")},
		{"both groups still fail", cluster.Failing("example.com/v1").Failing("example.com/v1alpha1").Failing("apps/v1beta1").Failing("apps/v1")},
		{"an API server lacks a resource", cluster.Without("apps/v1beta1")},
	} {
		s.Discovery = step.serves
		a, err := s.Ask(t.Context(), before, watched)
		if err != nil {
			t.Fatal(err)
		}
		gone, stale, started := a.Changes(nil, watched)
		if before == nil {
			for _, p := range started {
				watched[p.Resource.GroupResource()] = p
			}
		} else if len(gone)+len(stale)+len(started) > 0 {
			t.Errorf("%s: %v are gone, %v are stale, and %v start", step.name, gone, stale, started)
		}
		if len(watched) != 2 || watched[widgets].Resource.Version != "v1" || watched[scrolls].Resource.Version != "v1beta1" {
			t.Fatalf("%s: %v are watched", step.name, watched)
		}
		if len(a.Resolution.Unmatched) > 0 || len(a.Resolution.Watch) != 2 {
			t.Errorf("%s: %q match nothing, and %v are selected", step.name, a.Resolution.Unmatched, a.Resolution.Watch)
		}
		before = a
	}
	if len(missed) != 1 || missed[scrolls] != 1 {
		t.Errorf("missing are %v", missed)
	}
}

// TestTheGroupOfAnExcludedResourceFails verifies that an exclusion keeps the resource that it excludes
// while the discovery of its group fails. An earlier version then excluded a resource of the same name in
// another group, and stopped its informer.
func TestTheGroupOfAnExcludedResourceFails(t *testing.T) {
	cluster := discoverytest.Cluster()
	s := Survey{Discovery: cluster, Selection: discovery.Selection{Include: []string{"*"}, Exclude: []string{"widgets"}}}
	before, err := s.Ask(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	excluded, other := schema.GroupResource{Group: "example.com", Resource: "widgets"}, schema.GroupResource{Group: "example.org", Resource: "widgets"}
	for range 2 {
		watched := map[schema.GroupResource]Plan{}
		for _, r := range before.Resolution.Watch {
			watched[r.GroupResource()] = Plan{Resource: r}
		}
		s.Discovery = cluster.Failing("example.com/v1").Failing("example.com/v1alpha1")
		a, err := s.Ask(t.Context(), before, watched)
		if err != nil {
			t.Fatal(err)
		}
		if gone, stale, started := a.Changes(nil, watched); len(gone)+len(stale)+len(started) > 0 {
			t.Errorf("%v are gone, %v are stale, and %v start", gone, stale, started)
		}
		if d := a.Resolution.Decisions; d[excluded].ExcludedBy != "widgets" || d[other].ExcludedBy != "" {
			t.Errorf("the decisions are %+v and %+v", d[excluded], d[other])
		}
		before = a
	}
}

// TestFirstAnswerOfAStartingAPIServer verifies that Ask returns no first answer until the API server is ready, if
// references are followed. An API server that is starting doesn't serve custom resources yet. An earlier version
// then deselected the objects that only custom objects refer to.
func TestFirstAnswerOfAStartingAPIServer(t *testing.T) {
	readyz, asked := http.StatusOK, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/readyz":
			asked++
			w.WriteHeader(readyz)
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":[]}`)
		default:
			_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		}
	}))
	defer server.Close()
	client := kubediscovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL})
	for _, c := range []struct {
		status                int
		follows, later, fails bool
	}{
		{status: http.StatusInternalServerError, follows: true, fails: true},
		{status: http.StatusServiceUnavailable, follows: true, fails: true},
		{status: http.StatusOK, follows: true},
		{status: http.StatusForbidden, follows: true},
		{status: http.StatusNotFound, follows: true},
		{status: http.StatusInternalServerError},
		{status: http.StatusInternalServerError, follows: true, later: true},
	} {
		readyz, asked = c.status, 0
		var before *Answer
		if c.later {
			before = &Answer{Catalog: &discovery.Catalog{}}
		}
		s := Survey{Discovery: client, Follows: c.follows, Refused: func(schema.GroupResource) bool { return false }}
		_, err := s.Ask(t.Context(), before, nil)
		if (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
		if wants := c.follows && !c.later; (asked > 0) != wants {
			t.Errorf("%+v: %d requests for /readyz", c, asked)
		}
	}
}
