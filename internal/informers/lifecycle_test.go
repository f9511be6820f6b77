package informers

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestALife verifies the states of an informer during its life, with their reasons and start times.
func TestALife(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBench(t, Config{}, testResource)
	i := b.watched.informers[""]
	i.began = now
	later := func() time.Time { now = now.Add(time.Minute); return now }
	for _, c := range []struct {
		what   string
		happen func()
		want   State
		reason string
		same   bool // the state, and its start time, must not change
	}{
		{"it is made", func() {}, Starting, "", true},
		{"forbidden", func() { i.setFailing(forbiddenError("configmaps", ""), later()) }, Degraded, "forbidden", false},
		{"forbidden still", func() { i.setFailing(forbiddenError("configmaps", "web"), later()) }, Degraded, "forbidden", true},
		{"not found", func() { i.setFailing(pathNotFound(), later()) }, Degraded, "not_found", false},
		{"not any more", func() { i.setFailing(nil, later()) }, Starting, "", false},
		{"synced", func() { b.sync(); i.noteSynced(later()) }, Synced, "", false},
		{"fails", func() { i.setFailing(errors.New("away"), later()) }, Degraded, "failing", false},
		{"works again", func() { i.setFailing(nil, later()) }, Synced, "", false},
		{"works still", func() { i.setFailing(nil, later()) }, Synced, "", true},
	} {
		before := b.Status()[0].Since
		c.happen()
		got := b.Status()[0]
		if got.State != c.want || got.Reason != c.reason {
			t.Errorf("%s: got %s %q, want %s %q", c.what, got.State, got.Reason, c.want, c.reason)
		}
		if c.same && !got.Since.Equal(before) || !c.same && !got.Since.Equal(now) {
			t.Errorf("%s: since %s, now %s, before it was since %s", c.what, got.Since, now, before)
		}
	}
}

// TestStoppedForAReason verifies that stopped resources are remembered with a reason, up to a limit
// and until they are watched again.
func TestStoppedForAReason(t *testing.T) {
	resource := func(gr schema.GroupResource, version string) event.Resource {
		return event.Resource{Group: gr.Group, Resource: gr.Resource, Version: version, Namespaced: true}
	}
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	metrics := schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}
	gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	a := &answer{catalog: mustDiscover(t, discoverytest.Cluster())}
	b := newBench(t, Config{}, resource(schema.GroupResource{Group: "example.com", Resource: "widgets"}, "v1"))
	b.noteStopped(map[schema.GroupResource]event.Resource{
		deployments: resource(deployments, "v1"), metrics: resource(metrics, "v1beta1"), gadgets: resource(gadgets, "v1"),
		{Group: "example.com", Resource: "widgets"}: resource(schema.GroupResource{Group: "example.com", Resource: "widgets"}, "v1alpha1"),
	}, a)
	got := map[schema.GroupResource]string{}
	for _, st := range b.Stopped() {
		got[st.Resource.GroupResource()] = st.Reason
		if st.State != Stopped || st.Since.IsZero() {
			t.Errorf("got %+v", st)
		}
	}
	want := map[schema.GroupResource]string{deployments: notSelected, metrics: notWatchable, gadgets: notServed}
	for gr := range want {
		if got[gr] != want[gr] || len(got) != len(want) {
			t.Errorf("got %v, want %v", got, want)
			break
		}
	}
	b.Set.watched[deployments] = b.watched // the resource is watched again
	b.noteStopped(nil, a)
	if slices.ContainsFunc(b.Stopped(), func(st Status) bool { return st.Resource.GroupResource() == deployments }) {
		t.Error("what is watched again is among what is stopped")
	}
	many := map[schema.GroupResource]event.Resource{}
	for n := range 3 * maxStopped {
		gr := schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("r%d", n)}
		many[gr] = resource(gr, "v1")
	}
	b.noteStopped(many, a)
	if n := len(b.Stopped()); n != maxStopped {
		t.Errorf("%d are remembered, want %d", n, maxStopped)
	}
}
