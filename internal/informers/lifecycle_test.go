package informers

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	dto "github.com/prometheus/client_model/go"

	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/health"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestALife verifies the states of an informer during its life, with their reasons and start times.
func TestALife(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBench(t, Config{}, testResource)
	i := b.watched.informers.All()[""]
	i.began = now
	later := func() time.Time { now = now.Add(time.Minute); return now }
	for _, c := range []struct {
		what   string
		happen func()
		want   health.State
		reason string
		same   bool // the state, and its start time, must not change
	}{
		{"it is made", func() {}, health.Starting, "", true},
		{"forbidden", func() { i.setFailing(forbiddenError("configmaps", ""), later()) }, health.Degraded, "forbidden", false},
		{"forbidden still", func() { i.setFailing(forbiddenError("configmaps", "web"), later()) }, health.Degraded, "forbidden", true},
		{"not found", func() { i.setFailing(pathNotFound(), later()) }, health.Degraded, "not_found", false},
		{"not any more", func() { i.setFailing(nil, later()) }, health.Starting, "", false},
		{"synced", func() { b.sync(); i.noteSynced(later()) }, health.Synced, "", false},
		{"fails", func() { i.setFailing(errors.New("away"), later()) }, health.Degraded, "failing", false},
		{"works again", func() { i.setFailing(nil, later()) }, health.Synced, "", false},
		{"works still", func() { i.setFailing(nil, later()) }, health.Synced, "", true},
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

// TestStoppedForAReason verifies that stopped resources are counted with a reason.
func TestStoppedForAReason(t *testing.T) {
	resource := func(gr schema.GroupResource, version string) event.Resource {
		return event.Resource{Group: gr.Group, Resource: gr.Resource, Version: version, Namespaced: true}
	}
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	a := &survey.Answer{Catalog: mustDiscover(t, discoverytest.Cluster())}
	for gr, c := range map[schema.GroupResource]struct{ version, want string }{
		{Group: "apps", Resource: "deployments"}:    {"v1", notSelected},
		{Group: "metrics.k8s.io", Resource: "pods"}: {"v1beta1", notWatchable},
		{Group: "example.com", Resource: "gadgets"}: {"v1", notServed},
		widgets: {"v1alpha1", moved},
	} {
		b := newBench(t, Config{}, resource(widgets, "v1"))
		b.noteStopped(map[schema.GroupResource]survey.Plan{gr: {Resource: resource(gr, c.version)}}, a)
		if got := stopsOf(t, b.Set); len(got) != 1 || got[c.want] != 1 {
			t.Errorf("%s: got %v, want one stop for %s", gr, got, c.want)
		}
		b.noteStopped(map[schema.GroupResource]survey.Plan{widgets: {Resource: resource(widgets, "v1")}}, a) // still watched
		if got := stopsOf(t, b.Set); len(got) != 1 || got[c.want] != 1 {
			t.Errorf("%s: got %v after an answer that stops nothing", gr, got)
		}
	}
}

// stopsOf returns the number of stops of each reason.
func stopsOf(t *testing.T, s *Set) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, reason := range []string{notServed, notSelected, notWatchable, moved} {
		var m dto.Metric
		if err := s.counters.Stops.WithLabelValues(reason).Write(&m); err != nil {
			t.Fatal(err)
		}
		if n := m.GetCounter().GetValue(); n > 0 {
			all[reason] = n
		}
	}
	return all
}
