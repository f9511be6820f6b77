package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
)

func labelSelector(t *testing.T, s string) labels.Selector {
	t.Helper()
	l, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestFollowed verifies that an object of an unselected resource belongs on the bus only if a
// selected object refers to it, directly or through other objects.
func TestFollowed(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	own := func(u, owner *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}})
	}
	top := w.create(accounts, "top", nil)
	middle := w.create(accounts, "middle", nil)
	middle = w.update(accounts, middle, func(u *unstructured.Unstructured) { own(u, top) })
	bottom := w.create(configMaps, "bottom", nil)
	bottom = w.update(configMaps, bottom, func(u *unstructured.Unstructured) { own(u, middle) })
	w.publish(event.Created, configMaps, bottom)
	w.publish(event.Created, accounts, w.create(accounts, "unrelated", nil))
	w.create(accounts, "not-on-the-bus", nil)
	want(t, w.found())

	w.opts.Follow = []string{"ownerReferences"}
	want(t, w.found(), "missing middle", "missing top", "extra unrelated")
	w.publish(event.Created, accounts, middle)
	w.publish(event.Created, accounts, top)
	want(t, w.found(), "extra unrelated")
	w.opts.Follow = []string{"serviceaccounts:ownerReferences"}
	want(t, w.found()) // no selected object refers to a service account, so none is followed
}

// TestManyReferences verifies that only the first 1,000 references of an object select objects, as in the
// forwarder (docs/resources.md). Before the fix, verify reported the others as missing.
func TestManyReferences(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	last, beyond := w.create(accounts, "last", nil), w.create(accounts, "beyond", nil)
	refs := make([]any, 0, 1001)
	refer := func(name, uid string) {
		refs = append(refs, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid})
	}
	for n := range 999 {
		refer(fmt.Sprintf("gone-%d", n), fmt.Sprint(n))
	}
	refer("last", string(last.GetUID()))
	refer("beyond", string(beyond.GetUID()))
	w.publish(event.Created, configMaps, w.create(configMaps, "a", map[string]any{"metadata": map[string]any{"ownerReferences": refs}}))
	w.opts.Follow = []string{"ownerReferences", "configmaps:metadata.ownerReferences"}
	want(t, w.found(), "missing last")
}

// TestAnotherCluster verifies that Run returns an error if the claim on the bus names another
// cluster.
func TestAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	m, err := w.builder.ClusterClaimed(event.Claim{UID: "another", Claimed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.send(m); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(); err == nil || !strings.Contains(err.Error(), "belongs to another cluster on this bus") {
		t.Errorf("got %v", err)
	}
}

// TestReferencesCouldNotBeRead verifies that the report is not clean if the API server refused the
// list of the objects that refer to others, although it served the same list later. Before the fix,
// verify compared none of the objects that are selected by reference, and the report was clean.
func TestReferencesCouldNotBeRead(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	owner := w.create(accounts, "missing", nil)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "name": owner.GetName(), "uid": string(owner.GetUID()),
	}}}}))
	w.opts.Follow = []string{"ownerReferences"}
	want(t, w.found(), "missing missing")

	var once sync.Once
	w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (res *http.Response, err error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				once.Do(func() {
					body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`
					res = &http.Response{
						StatusCode: http.StatusInternalServerError, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
					}
				})
			}
			if res != nil {
				return res, nil
			}
			return rt.RoundTrip(r)
		})
	})
	if r, err := w.verify(); err == nil || len(r.Unlisted) != 1 || r.Unlisted[0].Resource != "configmaps" {
		t.Errorf("got %+v, %v; want an error about configmaps", r, err)
	}
}

// TestReferencesCouldBeReadAgain verifies that an error of the API server in one of the settle rounds
// has no effect if a later round reads the references. Before the fix, the report was incomplete.
func TestReferencesCouldBeReadAgain(t *testing.T) {
	w := newWorld(t)
	accounts := event.Resource{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	owner := w.create(accounts, "late", nil)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "name": owner.GetName(), "uid": string(owner.GetUID()),
	}}}}))
	w.opts.Follow = []string{"ownerReferences"}
	w.opts.Settle = 10 * limit
	var rounds, failed atomic.Int32
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for events in flight" && rounds.Add(1) == 3 {
			w.publish(event.Created, accounts, owner)
		}
	})
	w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if rounds.Load() != 2 || !strings.HasSuffix(r.URL.Path, "/configmaps") || failed.Add(1) > 1 {
				return rt.RoundTrip(r)
			}
			body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}`
			return &http.Response{
				StatusCode: http.StatusInternalServerError, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		})
	})
	want(t, w.found())
	if failed.Load() == 0 {
		t.Error("no round failed")
	}
}

// TestForgedClaim verifies that a malformed message in place of the claim names no owner. The
// forwarder ignores such a message. Before the fix, verify compared nothing.
func TestForgedClaim(t *testing.T) {
	w := newWorld(t)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", nil))
	m, err := w.builder.ClusterClaimed(event.Claim{UID: "another", Claimed: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	forged := natsgo.NewMsg(subject.Claim("kuberelay", clusterName))
	forged.Data = m.Data
	for _, a := range m.Attributes {
		forged.Header["ce-"+a.Name] = []string{a.Value}
	}
	forged.Header["ce-type"] = []string{"com.example.claimed"}
	if _, err := w.js.PublishMsg(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	want(t, w.found(), `malformed : unknown type "com.example.claimed" of a marker`)
}

// TestReferenceToAnUnknownGroup verifies that the report is not clean if a selected object refers to a
// group whose discovery fails. Before the fix, verify ignored the reference.
func TestReferenceToAnUnknownGroup(t *testing.T) {
	w := newWorld(t)
	owner := w.create(roles, "missing", nil)
	w.publish(event.Created, configMaps, w.create(configMaps, "a", map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": roles.APIVersion(), "kind": "Role", "name": owner.GetName(), "uid": string(owner.GetUID()),
	}}}}))
	w.opts.Follow = []string{"ownerReferences"}
	want(t, w.found(), "missing missing")

	w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := rt.RoundTrip(r)
			if err != nil || r.URL.Path != "/apis" {
				return res, err
			}
			defer func() { _ = res.Body.Close() }()
			var document tree
			if err := json.NewDecoder(res.Body).Decode(&document); err != nil {
				return nil, err
			}
			for _, group := range document["items"].([]any) {
				if group.(tree)["metadata"].(tree)["name"] == roles.Group {
					group.(tree)["versions"].([]any)[0].(tree)["freshness"] = "Stale"
				}
			}
			body, err := json.Marshal(document)
			res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return res, err
		})
	})
	if r, err := w.verify(); err == nil || len(r.Unlisted) != 1 || r.Unlisted[0].Resource != "*."+roles.Group {
		t.Errorf("got %+v, %v; want an error about the group", r, err)
	}
}
