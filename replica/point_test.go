package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// wantPoint reads an event, which must be a bookmark with the consistency point.
func (e *events) wantPoint(version int) {
	e.t.Helper()
	got := e.next()
	p, ok := parsePoint(metaOf(got.Object).GetResourceVersion())
	if want := (Point{fmt.Sprint(version), time.Unix(int64(version), 0).UTC()}); got.Type != watch.Bookmark || !ok || p != want {
		e.t.Fatalf("got %s %v, want a bookmark with %v", got.Type, got.Object, want)
	}
}

func wantPointIn(t testing.TB, resourceVersion string, version int) {
	t.Helper()
	if p, ok := parsePoint(resourceVersion); ok != (version > 0) || ok && p.ResourceVersion != fmt.Sprint(version) {
		t.Errorf("the resourceVersion is %q, want point %d", resourceVersion, version)
	}
}

// TestPoints verifies that a list and the bookmarks of a watch have the last consistency point that
// every log has reached. A bookmark follows each point and each event.
func TestPoints(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		w.puts(t, state{name: "a", version: 3})
		lw := w.open(t).ListerWatcher(configMaps, Options{Cluster: cluster})
		first := len(w.points) - 1
		for _, p := range w.points[:first] {
			p(4)
		}
		version, _, _ := list(t, lw)
		wantPointIn(t, version, 0)

		w.points[first](4)
		version, _, _ = list(t, lw)
		wantPointIn(t, version, 4)
		events := watchFrom(t, lw, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		w.puts(t, state{name: "a", version: 6})
		events.want("MODIFIED default/a@6")
		events.wantPoint(4)
		for _, p := range w.points[1:] {
			p(7)
			events.wantPoint(4)
		}
		w.points[0](6)
		events.wantPoint(6)
		silent := watchFrom(t, lw, metav1.ListOptions{})
		silent.want("ADDED default/a@6")
		w.points[0](7)
		events.wantPoint(7)
		w.puts(t, state{name: "a", version: 8, kind: event.Deleted})
		events.want("DELETED default/a@8")
		events.wantPoint(7)
		silent.want("DELETED default/a@8")
	})
}

// TestPointOfAnEmptyResource verifies that a consistency point completes a list even if the resource has
// no objects and no snapshot marker, as after the stream was recreated.
func TestPointOfAnEmptyResource(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		for _, p := range w.points {
			p(4)
		}
		version, shown, _ := list(t, w.open(t).ListerWatcher(configMaps, Options{}))
		wantList(t, shown)
		wantPointIn(t, version, 4)
	})
}

// TestLowestPoint verifies that the lowest of the logs' points counts, and that points of another cluster
// do not count.
func TestLowestPoint(t *testing.T) {
	logs := map[publish.Log]uint64{{Partition: 0}: 1, {Partition: 1}: 1}
	for _, test := range []struct {
		name, cluster string
		set           func(points)
		want          string
	}{
		{"none", "a", func(points) {}, ""},
		{"in one of two", "a", func(p points) { p.set("a", publish.Log{}, Point{"9", time.Time{}}) }, ""},
		{"lowest", "a", func(p points) {
			p.set("a", publish.Log{}, Point{"10", time.Time{}})
			p.set("a", publish.Log{Partition: 1}, Point{"9", time.Time{}})
		}, "9"},
		{"replaced by a lower one", "a", func(p points) {
			p.set("a", publish.Log{}, Point{"10", time.Time{}})
			p.set("a", publish.Log{Partition: 1}, Point{"11", time.Time{}})
			p.set("a", publish.Log{Partition: 1}, Point{"7", time.Time{}})
		}, "7"},
		{"of the only cluster", "", func(p points) {
			p.set("b", publish.Log{}, Point{"3", time.Time{}})
			p.set("b", publish.Log{Partition: 1}, Point{"3", time.Time{}})
		}, "3"},
		{"of two clusters", "", func(p points) {
			for _, c := range []string{"a", "b"} {
				p.set(c, publish.Log{}, Point{"3", time.Time{}})
				p.set(c, publish.Log{Partition: 1}, Point{"3", time.Time{}})
			}
		}, ""},
		{"of another cluster", "a", func(p points) {
			p.set("b", publish.Log{}, Point{"3", time.Time{}})
			p.set("b", publish.Log{Partition: 1}, Point{"3", time.Time{}})
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := points{}
			test.set(p)
			if got, ok := p.of(test.cluster, logs); got.ResourceVersion != test.want || ok != (test.want != "") {
				t.Errorf("got %v, %t; want %q", got, ok, test.want)
			}
		})
	}
}

// TestWait verifies that the wait ends when the store has reached the point, and not before. It also
// ends with its context.
func TestWait(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	synctest.Test(t, func(t *testing.T) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		begin := time.Now()
		for i, version := range []string{
			"7@2026-03-01T12:00:00Z",             // a list without a point
			"120",                                // an object
			Point{"99", at}.encode(),             // a bookmark
			Point{"99", at}.encode() + ";0:3,1:", // a list
			Point{"100", at}.encode() + ";0:3,1:100",
			Point{"102", at}.encode(),
		} {
			time.AfterFunc(time.Duration(i)*time.Second+time.Millisecond, func() { store.Bookmark(version) })
		}
		for _, test := range []struct {
			version, want string
			after         int
		}{{"", "99", 2}, {"99", "99", 2}, {"100", "100", 4}, {"101", "102", 5}} {
			p, err := WaitForResourceVersion(t.Context(), store, test.version)
			if err != nil || p != (Point{test.want, at}) {
				t.Errorf("%q: got %v, %v; want %s", test.version, p, err, test.want)
			}
			if got := int(time.Since(begin) / time.Second); got != test.after {
				t.Errorf("%q: it took until %d, want %d", test.version, got, test.after)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := WaitForResourceVersion(ctx, store, "103")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "resourceVersion 102") {
			t.Errorf("got %v, want the end of the context and the last point", err)
		}
		for _, version := range []string{"v1", "0", "012", "7@2026-03-01T12:00:00Z"} {
			if _, err := WaitForResourceVersion(t.Context(), store, version); err == nil || !strings.Contains(err.Error(), "not a number") {
				t.Errorf("%q: got %v, want an error that the version is not a number", version, err)
			}
		}
	})
}

// TestInformerOfPoints verifies that after the wait, the store of an informer has the object in the
// awaited version.
func TestInformerOfPoints(t *testing.T) {
	onBothBuses(t, func(t *testing.T, w *writer) {
		w.sync(t)
		lw := w.open(t).ListerWatcher(configMaps, Options{Cluster: cluster, Object: &corev1.ConfigMap{}})
		informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { informer.RunWithContext(ctx) })
		for version := 1; version < 200; version += 2 {
			w.puts(t, state{name: "a", version: version})
			for _, p := range w.points {
				p(version)
			}
			if _, err := WaitForResourceVersion(ctx, informer.GetStore(), fmt.Sprint(version)); err != nil {
				t.Fatal(err)
			}
			o, _, err := informer.GetStore().GetByKey("default/a")
			if cm, ok := o.(*corev1.ConfigMap); err != nil || !ok || cm.ResourceVersion != fmt.Sprint(version) {
				t.Fatalf("the store has %v, %v, want version %d", o, err, version)
			}
		}
	})
}
