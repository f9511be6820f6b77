package verify

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// TestPointAndSelectors verifies that objects are not extra at a point if a label selector stopped
// selecting them while no forwarder ran. Such objects stay on the bus, and may be selected again
// later.
func TestPointAndSelectors(t *testing.T) {
	w := newWorld(t)
	w.opts.LabelSelector = "app!=db"
	labeled := func(name string) *unstructured.Unstructured {
		return w.create(configMaps, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}})
	}
	back, left, gone := labeled("back"), labeled("left"), labeled("gone")
	for _, u := range []*unstructured.Unstructured{back, left, gone} {
		w.publish(event.Created, configMaps, u)
	}
	relabel := func(u *unstructured.Unstructured, app string) *unstructured.Unstructured {
		return w.update(configMaps, u, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"app": app}) })
	}
	back, _ = relabel(back, "db"), relabel(left, "db")
	w.delete(configMaps, "gone")
	w.point(w.version())
	back = relabel(back, "cache")
	w.opts.Settle = unbounded
	w.afterFirstRound(func() { w.publish(event.Updated, configMaps, back) })
	want(t, w.found(), "extra gone: uid")
}

// TestPointUnderChange verifies that verify needs no settle time while objects change constantly,
// and that it finds a wrong object at the next point.
func TestPointUnderChange(t *testing.T) {
	onBothBuses(t, func(w *world) {
		still := w.create(configMaps, "still", nil)
		w.publish(event.Created, configMaps, still)
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		var working sync.WaitGroup
		defer working.Wait()
		defer cancel()
		b := w.newBusy("busy", 1)
		working.Go(func() {
			if err := b.run(ctx, nil); err != nil {
				w.t.Error(err)
			}
		})
		w.opts.Settle = unbounded
		for range busyRounds {
			want(w.t, w.found())
		}
		w.touch(still)
		at := w.version()
		w.point(at) // the point is still wrong about the object
		r, err := w.verify()
		if err != nil {
			w.t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Problems, func(p report.Problem) bool { return p.Kind == report.Stale && p.Name == "still" && p.Point == at }) {
			w.t.Errorf("got %+v", r.Problems)
		}
	})
}

// TestDeletedBetweenLooks verifies that an object is not a problem if it is deleted after verify
// reads the cluster and before verify reads the bus. The deleted event has the version of the last
// state on the bus, because no watch showed the delete.
func TestDeletedBetweenLooks(t *testing.T) {
	w := newWorld(t)
	a := w.create(configMaps, "a", nil)
	w.publish(event.Created, configMaps, a)
	w.point(w.version())
	w.touch(a)
	var once sync.Once
	w.opts.Settle = unbounded
	w.opts.Kube.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := rt.RoundTrip(r)
			if q := r.URL.Query(); q.Has("fieldSelector") && !q.Has("resourceVersionMatch") {
				once.Do(func() {
					if err := w.client(configMaps).Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
					if _, err := w.tryPublish(event.Deleted, configMaps, a); err != nil {
						t.Error(err)
					}
				})
			}
			return answer, err
		})
	})
	want(t, w.found())
}

// TestPurgedWhileRead verifies that an object is not extra if the forwarder purges its events,
// including its delete, after verify has read the first of them. Verify never reads the delete.
func TestPurgedWhileRead(t *testing.T) {
	for _, pointed := range []bool{false, true} {
		w := newWorld(t)
		w.publish(event.Created, configMaps, w.create(configMaps, "gone", nil))
		w.publish(event.Created, configMaps, w.create(configMaps, "kept", nil))
		w.delete(configMaps, "gone")
		w.delete(configMaps, "kept")
		w.opts.Settle = time.Millisecond
		if pointed {
			w.atPoint()
		}
		var once sync.Once
		w.opts.Logger = logger(func(message string) {
			if message != "waiting for events in flight" {
				return
			}
			once.Do(func() {
				s, err := w.js.Stream(t.Context(), "KUBERELAY")
				if err == nil {
					err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject.Object("kuberelay", clusterName, configMaps.Key(w.namespace, "gone"))))
				}
				if err != nil {
					t.Error(err)
				}
			})
		})
		want(t, w.found(), "extra kept: uid")
	}
}
