package informers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/reconcile"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

var (
	budgets       = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	deviceClasses = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}
)

// mixed is a control plane in the middle of an upgrade, with two API servers behind one address. The
// older server does not serve budgets, and serves device classes only in an older version.
type mixed struct {
	cp           *controlplane.ControlPlane
	address      *faultproxy.Proxy
	newer, older string
}

func newMixed(t *testing.T) mixed {
	t.Helper()
	cp := controlplanetest.New(t, controlplane.Options{APIServerFlags: []string{"--runtime-config=api/all=true"}})
	older, err := cp.AddAPIServer(t.Context(), "--runtime-config=policy/v1=false,resource.k8s.io/v1=false,resource.k8s.io/v1beta1=true")
	if err != nil {
		t.Fatal(err)
	}
	return mixed{cp: cp, address: faultproxy.Start(t, cp.Address()), newer: cp.Address(), older: older.Address()}
}

func (m mixed) config() *rest.Config {
	config := m.cp.Config()
	config.Host = "https://" + m.address.Addr()
	return config
}

// answers directs all further requests to one of the servers, and waits until the Set has applied
// the discovery of that server.
func (m mixed) answers(t *testing.T, r *running, server string) {
	t.Helper()
	m.address.Direct(server)
	m.address.Break()
	poll.Try(t, "the other server's discovery", func(context.Context) error {
		a := r.lastAnswer()
		if a == nil {
			return errors.New("no answer")
		}
		if _, shown := a.Catalog.Resource(budgets); shown != (server == m.newer) {
			return fmt.Errorf("discovery shows budgets: %v", shown)
		}
		return nil
	})
}

// TestMixedVersions_Slow verifies that a resource that only one of two API servers serves does not count
// as gone, and that their alternating responses start and stop no informers.
func TestMixedVersions_Slow(t *testing.T) {
	m := newMixed(t)
	o := newObjects(t, m.cp, budgets, "PodDisruptionBudget", "default")
	one := o.create("one", nil)
	classes := newObjects(t, m.cp, deviceClasses, "DeviceClass", "")
	class := classes.create("class", nil)
	config := Config{Selection: discovery.Selection{Include: []string{"*"}}, Rediscover: 200 * time.Millisecond}
	gr := budgets.GroupResource()

	r := start(t, m.config(), config)
	r.awaitView(t, "one", o.key("one"), one)
	r.awaitView(t, "class", classes.key("class"), class)
	r.acknowledge(o.key("one"), ackedOf(one))
	w := r.watchedFor(gr)
	moves, last := 0, r.watchedFor(deviceClasses.GroupResource())
	for range 3 {
		for _, server := range []string{m.older, m.newer} {
			m.answers(t, r, server)
			if got, err := r.reconcile(t, gr); got != (reconcile.Comparison{}) || err != nil {
				t.Fatalf("got %+v, error %v; want nothing to do", got, err)
			}
			if r.watchedFor(gr) != w {
				t.Fatal("the informer of budgets was stopped")
			}
			if now := r.watchedFor(deviceClasses.GroupResource()); now != last {
				moves, last = moves+1, now
			}
		}
	}
	if moves > 1 {
		t.Errorf("device classes have moved %d times, want once to the version that both serve", moves)
	}
	one = o.touch(one, nil)
	r.awaitView(t, "changed", o.key("one"), one)
	if r.hasBeenBuried(o.key("one")) || r.hasBeenBuried(classes.key("class")) {
		t.Error("an object had a tombstone")
	}

	// A newly started process has no state except the bus.
	m.address.Direct(m.older)
	m.address.Break()
	again := newRunning(t, m.config(), config)
	again.acknowledge(o.key("one"), ackedOf(one))
	again.run(t)
	m.answers(t, again, m.older)
	if got, err := again.reconcile(t, gr); got != (reconcile.Comparison{OutOfScope: 1}) || err != nil {
		t.Errorf("got %+v, error %v; want one object out of scope", got, err)
	}
	m.answers(t, again, m.newer)
	again.awaitView(t, "served again", o.key("one"), one)
	if again.hasBeenBuried(o.key("one")) {
		t.Error("an object had a tombstone after a restart")
	}
}

// TestBuiltInGroups verifies that IsBuiltIn returns true for every group that the test API server
// itself serves.
func TestBuiltInGroups(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{APIServerFlags: []string{"--runtime-config=api/all=true"}})
	client, _ := clients(t, cp.Config())
	services, err := client.Resource(discovery.APIServiceResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, service := range services.Items {
		if service.GetLabels()[discovery.AutoRegisteredLabel] != "onstart" {
			continue
		}
		found++
		if group, _, _ := unstructured.NestedString(service.Object, "spec", "group"); !discovery.IsBuiltIn(group) {
			t.Errorf("%s is built in, but IsBuiltIn returns false", group)
		}
	}
	if found < 20 {
		t.Errorf("found %d versions that are built in", found)
	}
}

// TestAnAPIServiceIsRemoved verifies that the objects of an aggregated API count as gone only when
// a consistent read shows that the APIService is gone, not while its server is down. When the
// APIService returns, the objects return unchanged.
func TestAnAPIServiceIsRemoved(t *testing.T) {
	cp := controlplanetest.New(t, controlplane.Options{Aggregated: true})
	if err := cp.RegisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	flunders := schema.GroupVersionResource{Group: controlplane.AggregatedGroup, Version: controlplane.AggregatedVersion, Resource: "flunders"}
	gr := flunders.GroupResource()
	o := newObjects(t, cp, flunders, "Flunder", "default")
	one := o.create("one", nil)
	r := start(t, cp.Config(), Config{Selection: discovery.Selection{Include: []string{"configmaps", "*." + controlplane.AggregatedGroup}}})
	r.awaitView(t, "one", o.key("one"), one)
	r.acknowledge(o.key("one"), ackedOf(one))

	if err := cp.KillAggregated(); err != nil {
		t.Fatal(err)
	}
	poll.Try(t, "the group fails", func(context.Context) error {
		if _, ok := r.DiscoveryFailing()[gr.Group]; !ok {
			return fmt.Errorf("failing are %v", r.DiscoveryFailing())
		}
		return nil
	})
	if got, _ := r.reconcile(t, gr); got.Deleted != 0 || !r.watches(gr) {
		t.Errorf("its server is down: got %+v, watched %v", got, r.watches(gr))
	}
	if err := errors.Join(cp.StartAggregated(t.Context()), cp.AwaitAggregated(t.Context())); err != nil {
		t.Fatal(err)
	}

	if err := cp.UnregisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitStopped(t, gr)
	poll.Try(t, "it is deleted", func(context.Context) error {
		got, err := r.reconcile(t, gr)
		if got.Deleted != 1 {
			return errors.Join(fmt.Errorf("got %+v", got), err)
		}
		return nil
	})
	r.awaitView(t, "it is gone", o.key("one"), nil, one)

	if err := cp.RegisterAggregated(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitView(t, "it is back as it was", o.key("one"), one)
}
