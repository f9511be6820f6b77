package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestManyDefinitionsAtOnce verifies that many new definitions don't cause one discovery each.
func TestManyDefinitionsAtOnce(t *testing.T) {
	const many = 30
	cp := cluster.ControlPlane(t)
	var q controlplanetest.Requests
	r := start(t, q.Through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps", "*.many.example.com"}}})
	r.awaitSynced(t, configMaps.GroupResource())
	asked := func() int { return q.Count("/apis", "200") + q.Count("/apis", "304") }
	pauses := pausesOfDefinitions(t, cp)
	before, began := asked(), time.Now()
	grs := defineMany(t, cp, "many.example.com", 0, many)
	for _, gr := range grs {
		r.awaitSynced(t, gr)
	}
	n, seconds := asked()-before, int(time.Since(began)/time.Second)
	t.Logf("%d definitions in %d s, with %d pauses: %d discoveries, %d of them without a change", many, seconds, pauses(), n, q.Count("/apis", "304"))
	// A burst causes one discovery per second, plus one after the last change and its follow-ups. Each
	// pause of a slow API server between two definitions starts another burst.
	const perBurst = 5 // the last discovery and its four follow-ups
	if most := seconds + 1 + perBurst*(1+pauses()); n > most {
		t.Errorf("%d discoveries in %d s, want at most %d", n, seconds, most)
	}
}

// pausesOfDefinitions counts the pauses between changes of definitions that are long enough for a
// discovery to begin.
func pausesOfDefinitions(t *testing.T, cp *controlplane.ControlPlane) (count func() int) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	w, err := client.Resource(discovery.DefinitionResource).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	var pauses atomic.Int32
	go func() {
		last := time.Now()
		for range w.ResultChan() {
			if now := time.Now(); now.Sub(last) > 50*time.Millisecond { // discovery waits for 100 ms
				pauses.Add(1)
			}
			last = time.Now()
		}
	}()
	return func() int { return int(pauses.Load()) }
}

// apiService creates an APIService whose back end does not exist. It deletes the APIService at the
// end of the test.
func apiService(t *testing.T, cp *controlplane.ControlPlane, group, version string) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": version + "." + group},
		"spec": map[string]any{
			"group": group, "version": version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	if _, err := client.Resource(discovery.APIServiceResource).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAPIService(t, cp, group, version) })
}

func removeAPIService(t *testing.T, cp *controlplane.ControlPlane, group, version string) {
	t.Helper()
	client, _ := clients(t, cp.Config())
	err := client.Resource(discovery.APIServiceResource).Delete(context.WithoutCancel(t.Context()), version+"."+group, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestAGroupWithoutABackEnd verifies that a group with an unavailable back end is reported as
// failing as long as its APIService exists, even if nothing else changes. The Set draws no
// conclusion about the group and continues with all other groups.
func TestAGroupWithoutABackEnd(t *testing.T) {
	const group = "away.example.com"
	cp := cluster.ControlPlane(t)
	gvr := define(t, cp, group, true, "v1")
	o := newObjects(t, cp, gvr, "Widget", controlplanetest.Namespace(t, cp))
	one := o.create("one", nil)
	var q controlplanetest.Requests
	r := start(t, q.Through(cp.Config()), Config{Selection: discovery.Selection{Include: []string{"configmaps", "*." + group}}})
	r.awaitView(t, "one", o.key("one"), one)
	r.acknowledge(o.key("one"), ackedOf(one))
	failing := func(context.Context) error {
		if _, ok := r.DiscoveryFailing()[group]; !ok {
			return fmt.Errorf("the failing groups are %v", r.DiscoveryFailing())
		}
		return nil
	}

	apiService(t, cp, group, "v2")
	poll.Try(t, "it is noticed that the group fails", failing)
	before := q.Count("/apis", "304")
	poll.Try(t, "discovery is asked on, and does not change", func(context.Context) error {
		if q.Count("/apis", "304") < before+2 {
			return errors.New("it is not asked")
		}
		return nil
	})
	if err := failing(t.Context()); err != nil {
		t.Errorf("after unchanged discoveries: %v", err)
	}
	if got := gathered(t, collector{r.Set}); !slices.Contains(got, "discovery_failing{"+group+"} 1") {
		t.Errorf("metrics: got %q", got)
	}
	// The definition is deleted, but discovery cannot prove that while its group fails.
	undefine(t, cp, group)
	poll.Try(t, "its informer fails", func(context.Context) error {
		for _, st := range r.Status() {
			if st.Resource.GroupResource() == gvr.GroupResource() && st.State == health.Degraded && st.Reason != "" {
				return nil
			}
		}
		return fmt.Errorf("got %+v", r.Status())
	})
	if !r.watches(gvr.GroupResource()) {
		t.Error("the informer was stopped")
	}

	removeAPIService(t, cp, group, "v2")
	r.awaitStopped(t, gvr.GroupResource())
	poll.Try(t, "the group does not fail any more", func(context.Context) error {
		if err := failing(t.Context()); err == nil {
			return errors.New("it does")
		}
		return nil
	})
	poll.Try(t, "it is known why it was stopped", func(context.Context) error {
		if got := stopsOf(t, r.Set); len(got) != 1 || got[notServed] != 1 {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
	if _, err := r.reconcile(t, gvr.GroupResource()); err != nil {
		t.Error(err)
	}
	r.awaitView(t, "one is gone", o.key("one"), nil, one)
}

// TestFoundByPolling verifies that a forwarder without access to definitions and APIServices still
// finds new resources. It cannot prove that a resource is gone, so the informer of that resource
// continues.
func TestFoundByPolling(t *testing.T) {
	const group = "polled.example.com"
	cp := cluster.ControlPlane(t)
	allow(t, cp, "configmaps")
	var q controlplanetest.Requests
	r := start(t, q.Through(cp.ConfigFor("reader")), Config{Selection: discovery.Selection{Include: []string{"configmaps", "*." + group}}})
	r.awaitSynced(t, configMaps.GroupResource())
	gvr := define(t, cp, group, true, "v1")
	poll.Try(t, "it is found", func(context.Context) error {
		if !r.watches(gvr.GroupResource()) {
			return errors.New("nothing watches it")
		}
		return nil
	})
	undefine(t, cp, group)
	poll.Try(t, "it is missed", func(context.Context) error {
		if w := r.watchedFor(gvr.GroupResource()); w == nil || !w.missed.Load() {
			return fmt.Errorf("got %+v", r.Status())
		}
		return nil
	})
	asked := q.Count("/apis", "304")
	poll.Try(t, "discovery is asked again", func(context.Context) error {
		if q.Count("/apis", "304") < asked+2 {
			return errors.New("it is not asked")
		}
		return nil
	})
	if !r.watches(gvr.GroupResource()) {
		t.Error("its informer was stopped without a proof")
	}
	for _, gvr := range []schema.GroupVersionResource{discovery.DefinitionResource, discovery.APIServiceResource} {
		path := "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
		if q.Count(path, "403") == 0 || q.Count(path, "200") > 0 {
			t.Errorf("%s: got %v, want it forbidden", path, q.All())
		}
	}
}
