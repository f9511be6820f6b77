package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestNothingHasChanged verifies that the API server does not send unchanged discovery documents
// again, and that Discover distinguishes them from changed documents.
func TestNothingHasChanged(t *testing.T) {
	cp := cluster.ControlPlane(t)
	var q controlplanetest.Requests
	client := newClient(t, q.Through(cp.Config()))
	var first *Catalog
	// Earlier tests may still cause changes in the cluster. The responses are comparable only if
	// nothing changes between them.
	poll.Try(t, "nothing changes", func(context.Context) error {
		var unchanged bool
		var err error
		first, unchanged, err = Discover(t.Context(), client, nil)
		if err != nil || unchanged || !first.etags.complete() {
			t.Fatalf("got unchanged %v, etags %v, error %v", unchanged, first.etags, err)
		}
		whole, err := discover(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		before := q.Count("/apis", "304")
		c, unchanged, err := Discover(t.Context(), client, first)
		if err != nil || unchanged && (c != nil || q.Count("/apis", "304") != before+1 || q.Count("/api", "304") == 0) {
			t.Fatalf("got unchanged %v, error %v, answers %v", unchanged, err, q.All())
		}
		if !unchanged {
			return errors.New("it has changed")
		}
		return sameCatalog(first, whole)
	})
	// If only one of the two documents changes, the catalog must still contain both.
	known := &Catalog{etags: first.etags}
	known.etags.apis = `"OTHER"`
	c, unchanged, err := Discover(t.Context(), client, known)
	if err != nil || unchanged || !c.Shows(schema.GroupResource{Resource: "pods"}) || !c.Shows(schema.GroupResource{Group: "apps", Resource: "deployments"}) {
		t.Errorf("one has changed: got unchanged %v, error %v", unchanged, err)
	}
}

func sameCatalog(got, want *Catalog) error {
	if len(got.resources) != len(want.resources) || !slices.Equal(slices.Sorted(maps.Keys(got.Failed)), slices.Sorted(maps.Keys(want.Failed))) {
		return fmt.Errorf("got %d resources, failed %v; client-go has %d, %v", len(got.resources), got.Failed, len(want.resources), want.Failed)
	}
	for gvr, r := range want.resources {
		if g := got.resources[gvr]; g.Resource != r.Resource || !slices.Equal(g.verbs, r.verbs) {
			return fmt.Errorf("%s: got %+v, client-go has %+v", gvr, g, r)
		}
	}
	return nil
}

// TestAnAnswerOfAnotherForm verifies that Discover still returns a catalog if the API server, or a
// proxy in front of it, does not support aggregated discovery, sends no ETag, or fails.
func TestAnAnswerOfAnotherForm(t *testing.T) {
	cp := cluster.ControlPlane(t)
	for name, change := range map[string]func(*http.Response){
		"no etag":           func(r *http.Response) { r.Header.Del("Etag") },
		"another form":      func(r *http.Response) { r.Header.Set("Content-Type", "application/json") },
		"not acceptable":    func(r *http.Response) { r.StatusCode = http.StatusNotAcceptable },
		"not modified":      func(r *http.Response) { r.StatusCode = http.StatusNotModified },
		"too many requests": func(r *http.Response) { r.StatusCode = http.StatusTooManyRequests },
	} {
		t.Run(name, func(t *testing.T) {
			config := cp.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return controlplanetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					response, err := next.RoundTrip(r)
					if err == nil && !strings.Contains(r.Header.Get("Accept"), ",") { // client-go accepts several forms
						change(response)
					}
					return response, err
				})
			})
			client := newClient(t, config)
			for range 2 {
				c, unchanged, err := Discover(t.Context(), client, nil)
				if err != nil || unchanged || len(c.resources) == 0 || c.etags.complete() {
					t.Fatalf("got unchanged %v, error %v, etags %v", unchanged, err, c.etags)
				}
			}
		})
	}
}
