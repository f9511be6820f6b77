package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
)

// show formats an object as namespace/name@resourceVersion.
func show(o runtime.Object) string {
	m := metaOf(o)
	return m.GetNamespace() + "/" + m.GetName() + "@" + m.GetResourceVersion()
}

func list(t testing.TB, lw *ListerWatcher) (version string, shown []string, items []runtime.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l, err := lw.ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.ListAccessor(l)
	if err != nil {
		t.Fatal(err)
	}
	if items, err = meta.ExtractList(l); err != nil {
		t.Fatal(err)
	}
	for _, o := range items {
		shown = append(shown, show(o))
	}
	return m.GetResourceVersion(), shown, items
}

// events reads the events of a watch.
type events struct {
	t testing.TB
	w watch.Interface
}

func watchFrom(t testing.TB, lw *ListerWatcher, o metav1.ListOptions) *events {
	t.Helper()
	w, err := lw.WatchWithContext(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &events{t, w}
}

func (e *events) next() watch.Event {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	select {
	case got, ok := <-e.w.ResultChan():
		if !ok {
			e.t.Fatal("the watch ended")
		}
		return got
	case <-ctx.Done():
		e.t.Fatal("no event")
		panic("not reached")
	}
}

func (e *events) want(wants ...string) {
	e.t.Helper()
	for _, want := range wants {
		got := e.next()
		shown := string(got.Type)
		switch got.Type {
		case watch.Error:
			shown += fmt.Sprintf(" %d", got.Object.(*metav1.Status).Code)
		case watch.Bookmark:
		default:
			shown += " " + show(got.Object)
		}
		if shown != want {
			e.t.Fatalf("got %s (%v), want %s", shown, got.Object, want)
		}
	}
}

func wantList(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// TestListAndWatch verifies that a list has the last state of each object. The watch shows the changes
// after the list, across a restart of the bus, and repeats nothing.
func TestListAndWatch(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t,
			state{name: "a", version: 1}, state{name: "gone", version: 2}, state{name: "left", version: 3}, state{name: "a", version: 4},
			state{name: "gone", version: 5, kind: event.Deleted}, state{name: "left", version: 6, kind: event.Deselected},
			state{name: "b", namespace: "other", version: 7},
		)
		lw := w.open(t).ListerWatcher(configMaps, Options{Object: &corev1.ConfigMap{}})
		version, got, items := list(t, lw)
		wantList(t, got, "default/a@4", "other/b@7")
		if cm, ok := items[0].(*corev1.ConfigMap); !ok || cm.Data["n"] != "4" || cm.Kind != "" {
			t.Errorf("got %#v", items[0])
		}
		watch := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		w.puts(t, state{name: "a", version: 8}, state{name: "c", version: 9}, state{name: "c", version: 10, kind: event.Deleted})
		watch.want("MODIFIED default/a@8", "ADDED default/c@9", "DELETED default/c@10")
		if w.restart != nil {
			w.restart()
		}
		w.puts(t, state{name: "never", version: 11, kind: event.Deleted}, state{name: "d", version: 12}, state{name: "d", version: 13, kind: event.Deselected})
		watch.want("ADDED default/d@12", "DELETED default/d@13")
	})
}

// TestInitialEvents verifies that a watch without a resourceVersion begins with the current state.
func TestInitialEvents(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t, state{name: "b", version: 1}, state{name: "a", version: 2})
		lw := w.open(t).ListerWatcher(configMaps, Options{})
		initial := true
		events := watchFrom(t, lw, metav1.ListOptions{SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		events.want("ADDED default/a@2", "ADDED default/b@1")
		bookmark := events.next()
		if u, ok := bookmark.Object.(*unstructured.Unstructured); !ok || bookmark.Type != watch.Bookmark || u.GetKind() != "ConfigMap" ||
			u.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || u.GetResourceVersion() == "" {
			t.Errorf("got %v", bookmark)
		}
		w.puts(t, state{name: "b", version: 3})
		events.want("MODIFIED default/b@3")
	})
}

// TestTimeout verifies that a watch that times out ends with a bookmark, from which the next watch
// continues. The resourceVersion of an object or of another ListerWatcher is expired.
func TestTimeout(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t, state{name: "a", version: 1})
		bus := w.open(t)
		lw := bus.ListerWatcher(configMaps, Options{})
		version, _, _ := list(t, lw)
		w.puts(t, state{name: "a", version: 2})
		var events *events
		for seconds := int64(1); ; seconds *= 2 { // on a slow machine, a watch can end before it has the event
			events = watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
			first, open := <-events.w.ResultChan()
			if !open {
				continue
			}
			if first.Type == watch.Bookmark {
				version = metaOf(first.Object).GetResourceVersion()
				continue
			}
			if got := string(first.Type) + " " + show(first.Object); got != "MODIFIED default/a@2" {
				t.Fatalf("got %s, want the event", got)
			}
			break
		}
		bookmark := events.next()
		if _, open := <-events.w.ResultChan(); bookmark.Type != watch.Bookmark || open {
			t.Fatalf("got %v, want a bookmark and the end", bookmark)
		}
		version = metaOf(bookmark.Object).GetResourceVersion()
		for name, expired := range map[string]*ListerWatcher{"2": lw, version: bus.ListerWatcher(configMaps, Options{})} {
			if _, err := expired.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: name}); !apierrors.IsResourceExpired(err) {
				t.Errorf("watch from %q: got %v, want status 410 (Expired)", name, err)
			}
		}
		w.puts(t, state{name: "a", version: 3, kind: event.Deleted}, state{name: "b", version: 4})
		events = watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
		if w.restart == nil { // the objects are in different partitions
			got := []string{string(events.next().Type), string(events.next().Type)}
			slices.Sort(got)
			wantList(t, got, "ADDED", "DELETED")
			return
		}
		events.want("DELETED default/a@3", "ADDED default/b@4")
	})
}

// TestSelectors verifies that a reader sees only objects of its namespace that match its label selector.
// If an object stops matching, the watch shows it as deleted, with the last state that matched.
func TestSelectors(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		const in, out = `{"app":"web"}`, `{"app":"db"}`
		w.sync(t)
		w.puts(t,
			state{name: "a", version: 1, labels: in}, state{name: "b", version: 2, labels: out},
			state{name: "c", version: 3, labels: in, namespace: "other"}, state{name: "d", version: 3, labels: in, cluster: "another"},
		)
		lw := w.open(t).ListerWatcher(configMaps, Options{
			Cluster: cluster, Namespace: "default", Labels: labels.SelectorFromSet(labels.Set{"app": "web"}), Object: &metav1.PartialObjectMetadata{},
		})
		version, got, _ := list(t, lw)
		wantList(t, got, "default/a@1")
		events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version})
		step := func(want string, s state) watch.Event {
			t.Helper()
			w.puts(t, s)
			e := events.next()
			if got := string(e.Type) + " " + show(e.Object); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
			return e
		}
		w.puts(t, state{name: "c", version: 4, labels: in, namespace: "other"}, state{name: "b", version: 5, labels: out}, state{name: "d", version: 6, labels: in, cluster: "another"})
		step("ADDED default/b@7", state{name: "b", version: 7, labels: in})
		gone := step("DELETED default/a@8", state{name: "a", version: 8, labels: out})
		if l := metaOf(gone.Object).GetLabels(); l["app"] != "web" {
			t.Errorf("the deleted object has the labels %v", l)
		}
		unknown := step("DELETED default/b@9", state{name: "b", version: 9, kind: event.Deleted, unknown: true})
		if l := metaOf(unknown.Object).GetLabels(); l["app"] != "web" {
			t.Errorf("the deleted object has the labels %v", l)
		}
		w.puts(t, state{name: "a", version: 10, labels: out, kind: event.Deleted})
		step("ADDED default/a@11", state{name: "a", version: 11, labels: in})
	})
}

// listLater lists in the background. The channel receives the objects of the list. It is closed after
// an error.
func listLater(t *testing.T, lw *ListerWatcher) <-chan []string {
	listed := make(chan []string, 1)
	go func() {
		l, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Error(err)
			close(listed)
			return
		}
		var shown []string
		for _, item := range l.(*metav1.List).Items {
			shown = append(shown, show(item.Object))
		}
		listed <- shown
	}()
	return listed
}

// TestFirstSnapshot verifies that a list waits for the end of the first snapshot of the resource. It
// does not return an empty list while the bus has no event of the resource.
func TestFirstSnapshot(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		lw := w.open(t).ListerWatcher(configMaps, Options{})
		listed := listLater(t, lw)
		// Other lists see the bus while the first one waits.
		w.put(marker(t, event.SnapshotStarted))
		w.puts(t, state{name: "a", version: 1})
		other := w.open(t).ListerWatcher(gvrOf("apps", "v1", "deployments"), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := other.ListWithContext(ctx, metav1.ListOptions{}); err == nil {
			t.Error("the list of a resource without events on the bus did not wait")
		}
		select {
		case got := <-listed:
			t.Fatalf("listed %q during the first snapshot", got)
		default:
		}
		w.puts(t, state{name: "b", version: 2})
		w.put(marker(t, event.SnapshotCompleted))
		wantList(t, <-listed, "default/a@1", "default/b@2")
	})
}

// TestIncomplete verifies that a truncated object has the annotation. It also verifies that a list fails
// if an object is hidden or has another API version, or if the bus has objects of several clusters.
func TestIncomplete(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t, state{name: "large", version: 1, truncated: true}, state{name: "b", version: 2})
		bus := w.open(t)
		typed := bus.ListerWatcher(configMaps, Options{Object: &corev1.ConfigMap{}})
		version, _, items := list(t, typed)
		for _, o := range items {
			cm := o.(*corev1.ConfigMap)
			if large := cm.Name == "large"; large != (cm.Annotations[TruncatedAnnotation] == "true") || large != (cm.Data == nil) {
				t.Errorf("got %v", cm)
			}
		}
		_, _, items = list(t, bus.ListerWatcher(configMaps, Options{Object: &metav1.PartialObjectMetadata{}}))
		for _, o := range items {
			if a := metaOf(o).GetAnnotations(); a != nil {
				t.Errorf("got the annotations %v", a)
			}
		}
		events := watchFrom(t, typed, metav1.ListOptions{ResourceVersion: version})
		w.putOther(configMapResource.Key("default", "b"))
		w.puts(t, state{name: "c", version: 3, cluster: "another"})
		events.want("ERROR 500")
		fails := func(lw *ListerWatcher, want string) {
			t.Helper()
			if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		fails(typed, "set Options.Cluster")
		fails(bus.ListerWatcher(configMaps, Options{Cluster: cluster}), "is not an event")
		w.puts(t, state{name: "b", version: 4})
		list(t, bus.ListerWatcher(configMaps, Options{Cluster: cluster}))
		w.puts(t, state{name: "d", version: 5, apiVersion: "v1beta1"})
		fails(bus.ListerWatcher(configMaps, Options{Cluster: cluster, Object: &corev1.ConfigMap{}}), "in version v1beta1, not in v1")
		fails(bus.ListerWatcher(configMaps, Options{Object: &metav1.Status{}}), "no metadata")
		for _, o := range []metav1.ListOptions{{LabelSelector: "a=b"}, {FieldSelector: "a=b"}, {ResourceVersionMatch: metav1.ResourceVersionMatchExact}} {
			if _, err := typed.List(o); !apierrors.IsBadRequest(err) {
				t.Errorf("%v: got %v, want a bad request", o, err)
			}
		}
	})
}

// TestClose verifies that Close ends a watch, and that a list after Close fails.
func TestClose(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		bus := w.open(t)
		lw := bus.ListerWatcher(configMaps, Options{})
		events := watchFrom(t, lw, metav1.ListOptions{})
		if err := bus.Close(); err != nil {
			t.Fatal(err)
		}
		events.want("ERROR 500")
		if _, err := lw.List(metav1.ListOptions{}); err == nil {
			t.Error("a list after Close has no error")
		}
	})
}
