package informers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/discovery/survey"
	"github.com/kuberelay/kuberelay/internal/event"
)

// gathered returns the metrics of a collector in the form "name{label,label} value".
func gathered(t *testing.T, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "kuberelay_")
			all = append(all, fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	slices.Sort(all)
	return all
}

// TestMetrics verifies the metrics of a resource that is watched in several namespaces. It is
// synced only when all of its informers are synced, and fails when any of them fails.
func TestMetrics(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default", "team-a"}}}, testResource)
	now := time.Unix(900, 0)
	b.config.Now = func() time.Time { return now }
	b.list(object("A", "1"))
	b.list(&event.Object{Namespace: "team-a", Name: "web", UID: "B", ResourceVersion: "2"})
	now = now.Add(42 * time.Second)
	b.Settle(testKey, live("A", "1"))
	b.watched.informers.All()["default"].registration = syncedRegistration{}
	since := time.Unix(1000, 0)
	for _, i := range b.watched.informers.All() {
		i.began = since
	}
	b.watched.informers.All()["team-a"].setFailing(forbiddenError("configmaps", ""), since.Add(time.Minute))
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{Failed: map[string]error{"": errors.New("stale"), "away.example.com": errors.New("stale")}}}
	b.failed = errors.New("no answer")
	want := []string{
		"dirty_objects{} 1",
		"discovery_failing{*} 1",
		"discovery_failing{away.example.com} 1",
		"discovery_failing{core} 1",
		"informer_failing{forbidden,configmaps} 1",
		"informer_objects{configmaps} 2",
		"informer_state_since_timestamp_seconds{configmaps} 1060",
		"informer_state{forbidden,configmaps,degraded} 1",
		"informer_synced{configmaps} 0",
		"oldest_unsent_change_seconds{} 42",
	}
	if got := gathered(t, collector{b.Set}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.watched.informers.All()["default"].setFailing(errors.New("away"), since) // an earlier version showed only the last reason
	want = slices.Insert(want, 4, "informer_failing{failing,configmaps} 1")
	want[slices.Index(want, "informer_state{forbidden,configmaps,degraded} 1")] = "informer_state{failing,configmaps,degraded} 1"
	want[slices.Index(want, "informer_state_since_timestamp_seconds{configmaps} 1060")] = "informer_state_since_timestamp_seconds{configmaps} 1000"
	if got := gathered(t, collector{b.Set}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.sync()
	b.watched.informers.All()["default"].setFailing(nil, since)
	b.watched.informers.All()["team-a"].setFailing(nil, since)
	b.answer, b.failed = nil, nil
	want = []string{
		"dirty_objects{} 1", "informer_objects{configmaps} 2", "informer_state_since_timestamp_seconds{configmaps} 1000",
		"informer_state{,configmaps,synced} 1", "informer_synced{configmaps} 1", "oldest_unsent_change_seconds{} 42",
	}
	if got := gathered(t, collector{b.Set}); !slices.Equal(got, want) {
		t.Errorf("when it is synced: got %q, want %q", got, want)
	}
}

// TestMetricsBeforeTheInformersStart verifies the start time of the state of a resource that has no
// informers yet. In an earlier version, that time was in the year 1.
func TestMetricsBeforeTheInformersStart(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.config.Now = func() time.Time { return time.Unix(900, 0) }
	b.Set.watched.Put(testKey.GroupResource(), b.newWatched(testResource, false, func() {}))
	const want = "informer_state_since_timestamp_seconds{configmaps} 900"
	if got := gathered(t, collector{b.Set}); !slices.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStatusWhileAnAnswerIsAppliedDoesNotBlock verifies that Status does not lock s.mu for reading
// twice. To count objects that are selected by reference, it looks up the watched resources again.
// A second read lock would deadlock if a writer waits.
func TestStatusWhileAnAnswerIsAppliedDoesNotBlock(t *testing.T) {
	b := newBench(t, Config{Follow: []string{"ownerReferences"}}, testResource)
	b.watched.followed = true
	b.index(object("A", "1"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			b.Status()
		}
	}()
	for deadline := time.After(time.Minute); ; {
		select {
		case <-done:
			return
		case <-deadline:
			t.Fatal("Status blocks")
		default:
		}
		locked := make(chan struct{})
		go func() {
			defer close(locked)
			b.Set.mu.Lock()
			defer b.Set.mu.Unlock()
		}()
		select {
		case <-locked:
		case <-deadline:
			t.Fatal("Status blocks")
		}
	}
}

// TestReasonIsBounded verifies that ErrorReason returns one of a few values, because it is a metric
// label.
func TestReasonIsBounded(t *testing.T) {
	for want, err := range map[string]error{
		"":             nil,
		"forbidden":    fmt.Errorf("list: %w", forbiddenError("configmaps", "")),
		"not_found":    pathNotFound(),
		"unauthorized": apierrors.NewUnauthorized("no"),
		"failing":      errors.New("anything else"),
	} {
		if got := discovery.ErrorReason(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

// TestReadyWhereSomethingMayNotBeRead verifies that Ready ignores forbidden informers, unless all
// are forbidden.
func TestReadyWhereSomethingMayNotBeRead(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default", "team-a"}}}, testResource)
	b.answer = &survey.Answer{}
	b.watched.informers.All()["default"].registration = syncedRegistration{}
	b.watched.informers.All()["team-a"].setFailing(forbiddenError("configmaps", ""), time.Now())
	if err := b.Ready(); err != nil {
		t.Errorf("one of two is forbidden: %v", err)
	}
	b.watched.informers.All()["default"].setFailing(forbiddenError("configmaps", ""), time.Now())
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "get, list, and watch") {
		t.Errorf("both are forbidden: got %v, want the fix", err)
	}
}

func TestReadyNamesAFewOfMany(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.answer = &survey.Answer{}
	for n := range 9 {
		r := event.Resource{Version: "v1", Resource: fmt.Sprintf("r%d", n)}
		b.Set.watched.Put(r.GroupResource(), newBench(t, Config{}, r).watched)
	}
	if err := b.Ready(); err == nil || err.Error() != "not synced: configmaps, r0, r1 and 7 more" {
		t.Errorf("got %v", err)
	}
	b.Set.watched.Change(func(m map[schema.GroupResource]*watched) { clear(m) })
	if err := b.Ready(); err != nil {
		t.Errorf("nothing to watch: got %v", err)
	}
}

// TestWatchEventsAreCounted verifies that changes are counted, and bookmarks and errors are not.
func TestWatchEventsAreCounted(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	i := b.watched.informer(testKey)
	for _, e := range []watch.Event{
		{Type: watch.Added, Object: object("A", "1")}, {Type: watch.Modified, Object: object("A", "2")}, {Type: watch.Bookmark, Object: object("", "3")},
		{Type: watch.Deleted, Object: object("A", "4")}, {Type: watch.Error, Object: &metav1.Status{Reason: metav1.StatusReasonExpired}},
	} {
		b.shown(i, e)
	}
	var got dto.Metric
	if err := b.counters.Changes.WithLabelValues("configmaps").Write(&got); err != nil {
		t.Fatal(err)
	}
	if got.GetCounter().GetValue() != 3 {
		t.Errorf("%v changes were counted, want 3", got.GetCounter().GetValue())
	}
}

// TestStatusDuringTheFirstAlignment verifies that a status is not ready if the first alignment of a resource
// completes while the status is read. The status may lack the informers that the alignment has started.
func TestStatusDuringTheFirstAlignment(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.sync()
	b.watched.alignment.Store(&alignment{})
	got := b.report(func(*informer) int {
		b.watched.alignment.Store(&alignment{complete: true})
		return 0
	})
	if got.Ready() == nil {
		t.Errorf("ready: %+v", got)
	}
}

// TestTheWatchOfNamespacesFails verifies that the status says if the watch of namespaces fails after
// its first list: until it works again, the Set does not notice that a namespace becomes selected. An
// earlier version only logged the failure.
func TestTheWatchOfNamespacesFails(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Selector: labels.Everything()}}, testResource)
	b.sync()
	b.namespaces.Synced()
	no := apierrors.NewForbidden(discovery.NamespaceResource.GroupResource(), "", nil)
	for _, step := range []struct {
		err       error
		forbidden int
	}{{nil, 0}, {no, 1}, {nil, 0}} {
		_ = b.namespaces.Fail(step.err)
		forbidden, all := append(b.Health(), b.NamespaceWatch()...).Forbidden()
		shown := slices.Contains(gathered(t, collector{b.Set}), "informer_failing{forbidden,namespaces} 1")
		if forbidden != step.forbidden || all != 1+step.forbidden || shown != (forbidden > 0) || b.Health().Ready() != nil {
			t.Errorf("error %v: %d of %d forbidden, in the metrics: %t, ready: %v", step.err, forbidden, all, shown, b.Health().Ready())
		}
		if forbidden, all := b.Health().Forbidden(); forbidden != 0 || all != 1 { // else a Set without informers would not be ready
			t.Errorf("error %v: the watch of namespaces counts as an informer of a resource", step.err)
		}
	}
}

// TestReadyWaitsForFollowedResources verifies that the informers are not ready between the list of an
// object and the start of the informers of the resource to which the object refers.
func TestReadyWaitsForFollowedResources(t *testing.T) {
	resource := func(name string) event.Resource {
		return event.Resource{Group: "example.com", Version: "v1", Resource: name, Kind: name, Namespaced: true}
	}
	parts, gadgets := resource("parts"), resource("gadgets")
	b := newBench(t, Config{Follow: []string{"spec.ref"}}, gadgets)
	b.answer = &survey.Answer{Catalog: &discovery.Catalog{}}
	b.references.Learn(map[schema.GroupKind]event.Resource{{Group: "example.com", Kind: "parts"}: parts}, nil)
	b.sync()
	if err := b.Ready(); err != nil {
		t.Errorf("without a reference: %v", err)
	}
	gadget := object("G", "3")
	gadget.References = []event.Reference{{Group: "example.com", Kind: "parts", Name: "other"}}
	b.list(gadget)
	if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "parts.example.com") {
		t.Errorf("before the resource is watched: %v", err)
	}
	i := b.watch(t, parts, true).informers.All()[""]
	if err := b.Ready(); err == nil {
		t.Error("ready before the resource is listed")
	}
	i.registration = syncedRegistration{}
	if err := b.Ready(); err != nil {
		t.Errorf("with the resource: %v", err)
	}
}
