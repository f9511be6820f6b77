package verify

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// onBothBuses runs a test on a stream and on a topic.
func onBothBuses(t *testing.T, test func(*world)) {
	t.Helper()
	t.Run("nats", func(t *testing.T) { test(newWorld(t)) })
	t.Run("kafka", func(t *testing.T) { test(onKafka(newWorld(t))) })
}

// version returns the current version of the cluster.
func (w *world) version() string {
	w.t.Helper()
	list, err := w.client(configMaps).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.GetResourceVersion()
}

// point publishes a consistency point. On Kafka, it publishes to the given partitions, or to all.
func (w *world) point(version string, partitions ...int) {
	w.t.Helper()
	m, err := w.builder.Resolved(event.Point{Resource: configMaps, Version: version, AsOf: time.Now(), Taken: time.Now()})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.topic == nil {
		if _, err := w.send(m); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	if len(partitions) == 0 {
		for p := range kafkaPartitions {
			partitions = append(partitions, p)
		}
	}
	for _, p := range partitions {
		w.topic.PutAt(p, m)
	}
}

// unbounded is a settle time that no test waits for.
const unbounded = 100 * limit

// atPoint publishes a consistency point at the current version of the cluster. It also sets an
// unbounded settle time, so that verify must find every difference at the point.
func (w *world) atPoint() {
	w.t.Helper()
	w.point(w.version())
	w.opts.Settle, w.pointed = unbounded, true
}

// afterFirstRound calls do after verify has read every candidate once.
func (w *world) afterFirstRound(do func()) {
	rounds := 0
	w.opts.Logger = logger(func(message string) {
		if message == "waiting for events in flight" {
			if rounds++; rounds == 2 {
				do()
			}
		}
	})
}

// TestAfterPoint verifies that changes after the version of a point are not problems, and that
// verify does not wait for the settle time. The events of these changes are on the bus before or
// after the point, or are not on the bus yet.
func TestAfterPoint(t *testing.T) {
	onBothBuses(t, func(w *world) {
		objects := map[string]*unstructured.Unstructured{}
		for _, name := range []string{"same", "before", "after", "both", "deleted-before", "deleted-after", "missed", "recreated", "late", "late-deleted"} {
			objects[name] = w.create(configMaps, name, map[string]any{"data": map[string]any{"k": "v"}})
			w.publish(event.Created, configMaps, objects[name])
		}
		w.create(configMaps, "skipped", nil) // deleted before it was published
		at := w.version()
		touch := func(name string) *unstructured.Unstructured {
			objects[name] = w.touch(objects[name])
			return objects[name]
		}
		remove := func(name string) *unstructured.Unstructured {
			w.delete(configMaps, name)
			gone := objects[name].DeepCopy()
			gone.SetResourceVersion(w.version()) // as the watch shows it
			return gone
		}
		w.delete(configMaps, "skipped")
		w.publish(event.Updated, configMaps, touch("before"))
		w.publish(event.Updated, configMaps, touch("both"))
		w.publish(event.Created, configMaps, w.create(configMaps, "new-before", nil))
		w.publish(event.Deleted, configMaps, remove("deleted-before"))
		w.delete(configMaps, "missed")
		w.publish(event.Deleted, configMaps, objects["missed"]) // no watch showed the delete, so it has the version of the last state
		w.publish(event.Deleted, configMaps, remove("recreated"))
		w.publish(event.Created, configMaps, w.create(configMaps, "recreated", nil))
		w.point(at)
		w.publish(event.Updated, configMaps, touch("after"))
		w.publish(event.Updated, configMaps, touch("both"))
		w.publish(event.Created, configMaps, w.create(configMaps, "new-after", nil))
		w.publish(event.Deleted, configMaps, remove("deleted-after"))
		late, gone, created := touch("late"), remove("late-deleted"), w.create(configMaps, "late-created", nil)

		w.opts.Settle = unbounded
		w.afterFirstRound(func() {
			for _, e := range []struct {
				t event.Type
				o *unstructured.Unstructured
			}{{event.Updated, late}, {event.Deleted, gone}, {event.Created, created}} {
				if _, err := w.tryPublish(e.t, configMaps, e.o); err != nil {
					w.t.Error(err)
				}
			}
		})
		r, err := w.verify()
		if err != nil || !r.Clean() {
			w.t.Errorf("got %+v, %v", r, err)
		}
		if p := r.Resources[0].Point; p == nil || p.ResourceVersion != at || r.Resources[0].NoPoint != "" || r.Resources[0].Settled != 3 {
			w.t.Errorf("got %+v of the resource, %+v", r.Resources[0], p)
		}
	})
}

// TestWrongAfterPoint verifies that an event after the version of a point is compared with the
// cluster at the version of the event. The settle time applies to later changes that the bus lacks.
func TestWrongAfterPoint(t *testing.T) {
	onBothBuses(t, func(w *world) {
		a, b, c := w.create(configMaps, "a", nil), w.create(configMaps, "b", nil), w.create(configMaps, "c", nil)
		d := w.create(configMaps, "d", nil)
		w.sync(configMaps)
		at := w.version()
		other := body(func(t tree) { t["data"] = tree{"k": "other"} })
		a, b = w.touch(a), w.touch(b)
		w.publish(event.Updated, configMaps, a, other)
		w.publish(event.Updated, configMaps, b, as(string(b.GetUID()), plus(b.GetResourceVersion(), 1)))
		w.touch(a)
		w.touch(c) // not published
		w.delete(configMaps, "d")
		w.point(at)
		r, err := w.verify()
		if err != nil {
			w.t.Fatal(err)
		}
		var got []string
		for _, p := range r.Problems {
			got = append(got, fmt.Sprintf("%s %s at %q: %s", p.Kind, p.Name, p.Point, p.Detail))
		}
		want(w.t, got,
			fmt.Sprintf("different a at %q: same version, other data: data (only on the bus)", at),
			fmt.Sprintf("stale b at %q: the cluster never had this version of it", at),
			`stale c at "": the bus is behind the cluster`,
			fmt.Sprintf(`extra d at "": uid %q is not in the cluster`, d.GetUID()))
	})
}

// TestNoPoint verifies that without a usable consistency point, verify gives differences the settle
// time, and reports the reason.
func TestNoPoint(t *testing.T) {
	answer := func(code int, text string) func(http.RoundTripper) http.RoundTripper {
		return func(rt http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if !r.URL.Query().Has("resourceVersionMatch") {
					return rt.RoundTrip(r)
				}
				return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
			})
		}
	}
	ignored := func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			q := r.URL.Query()
			q.Del("resourceVersion")
			q.Del("resourceVersionMatch")
			r.URL.RawQuery = q.Encode()
			return rt.RoundTrip(r)
		})
	}
	for _, tc := range []struct {
		name  string
		point func(w *world, at string)
		want  string
	}{
		{"none", func(*world, string) {}, "the bus has no consistency point of it"},
		{"expired", func(w *world, at string) {
			w.point(at)
			w.opts.Kube.Wrap(answer(http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`))
		}, "the API server no longer has the consistency point at "},
		{"refused", func(w *world, at string) {
			w.point(at)
			w.opts.Kube.Wrap(answer(http.StatusBadRequest, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`))
		}, "the API server can't list the version "},
		{"ignored", func(w *world, at string) {
			w.point(at)
			w.opts.Kube.Wrap(ignored)
		}, "the API server can't list the version "},
		{"of the future", func(w *world, at string) { w.point(plus(at, 1_000_000)) }, "is ahead of the cluster"},
		{"no number", func(w *world, _ string) { w.point("x") }, "the bus has no consistency point of it"},
		{"of an earlier history", func(w *world, at string) {
			w.point(at)
			w.publish(event.Created, configMaps, w.create(configMaps, "epoch", nil), epochOf(1))
		}, "the bus has no consistency point of it"},
		{"namespace selector", func(w *world, at string) {
			w.point(at)
			w.opts.NamespaceSelector = labels.SelectorFromSet(labels.Set{"kubernetes.io/metadata.name": w.namespace})
		}, "other objects decide which of its objects are selected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{"a", "b"} {
				w.create(configMaps, name, nil)
			}
			w.sync(configMaps)
			x := w.create(configMaps, "x", nil)
			w.publish(event.Created, configMaps, x)
			w.delete(configMaps, "x")
			tc.point(w, w.version())
			w.create(configMaps, "late", nil)
			r, err := w.verify()
			if err != nil || len(r.Problems) != 2 || r.Problems[0].Kind != report.Missing || r.Problems[1].Kind != report.Extra || r.Problems[0].Point+r.Problems[1].Point != "" {
				t.Errorf("got %+v, %v", r.Problems, err)
			}
			if got := r.Resources[0]; got.Point != nil || !strings.Contains(got.NoPoint, tc.want) || got.Settled != 2 {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}

// TestPointInOnePartition verifies that a point holds only for the partitions that have its record.
// For the other partitions, the earlier point holds.
func TestPointInOnePartition(t *testing.T) {
	w := onKafka(newWorld(t))
	w.writers("one")
	a := w.create(configMaps, "a", nil)
	w.publish(event.Created, configMaps, a)
	first := w.version()
	w.point(first)
	w.touch(a)
	for p := range kafkaPartitions {
		if p != w.partition("a") {
			w.point(w.version(), p)
		}
	}
	r, err := w.verify()
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Point != "" || r.Resources[0].Point == nil || r.Resources[0].Point.ResourceVersion != first {
		t.Errorf("got %+v of %+v, %v", r.Problems, r.Resources, err)
	}
	w.point(w.version(), w.partition("a"))
	w.opts.Settle = unbounded
	want(t, w.found(), "stale a: the bus is behind the cluster")
}
