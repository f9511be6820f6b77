package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest/fake"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/discoverytest"
)

// TestReconcile has a case for each way in which the bus and the informer can disagree, and for each
// result of the consistent read that follows.
func TestReconcile(t *testing.T) {
	type read struct {
		o   *unstructured.Unstructured
		err error
	}
	for name, c := range map[string]struct {
		view    func(*ObjectView)
		publish bool // deselected events
		live    *event.Object
		acked   event.Acked
		epoch   uint16 // of the informers
		read    *read  // nil if the object must not be read

		want       Comparison
		gone       bool // a tombstone of the bus's UID
		deselected bool // a tombstone of a deselected object
		enqueued   bool
		raised     uint16
		fails      bool
	}{
		"as the bus has it":                         {live: object("A", "5"), acked: live("A", "5")},
		"gone, as the bus says":                     {acked: deleted("A", "5")},
		"later than the bus":                        {live: object("A", "6"), acked: live("A", "5"), enqueued: true},
		"back after a delete":                       {live: object("A", "6"), acked: deleted("A", "5"), enqueued: true},
		"recreated after a delete that the bus has": {live: object("B", "6"), acked: deleted("A", "5"), enqueued: true},
		"a message that is no event":                {live: object("B", "6"), acked: event.Acked{Position: 3}},

		"missing and gone": {acked: live("A", "5"), read: &read{err: notFound()},
			want: Comparison{Deleted: 1}, gone: true, enqueued: true},
		"missing, its name is another's": {acked: live("A", "5"), read: &read{o: stored("B", "9")},
			want: Comparison{Deleted: 1}, gone: true, enqueued: true},
		"recreated while nobody watched": {live: object("B", "9"), acked: live("A", "5"), read: &read{o: stored("B", "9")},
			want: Comparison{Deleted: 1}, gone: true, enqueued: true},
		"missing in the informer only": {acked: live("A", "5"), read: &read{o: stored("A", "5")}, want: Comparison{Waiting: 1}},
		"behind in the informer only":  {live: object("A", "4"), acked: live("A", "5"), read: &read{o: stored("A", "5")}, want: Comparison{Waiting: 1}},
		"gone, but the informer does not know yet": {live: object("A", "4"), acked: live("A", "5"), read: &read{err: notFound()},
			want: Comparison{Waiting: 1}},
		"not gone yet in the informer": {live: object("A", "4"), acked: deleted("A", "5"), read: &read{err: notFound()},
			want: Comparison{Waiting: 1}},
		"back, and the informer is behind": {live: object("A", "4"), acked: deleted("A", "5"), read: &read{o: stored("A", "7")},
			want: Comparison{Waiting: 1}},

		"the read fails":        {acked: live("A", "5"), read: &read{err: errors.New("no answer")}, fails: true},
		"the read is forbidden": {acked: live("A", "5"), read: &read{err: forbiddenError("configmaps", "web")}, fails: true},
		"the path is not found": {acked: live("A", "5"), read: &read{err: pathNotFound()}, fails: true},
		"the informer has not synced": {view: func(v *ObjectView) { v.Synced = false }, acked: live("A", "5"),
			want: Comparison{Waiting: 1}},

		"in no watched namespace": {view: func(v *ObjectView) { v.Selected, v.Covered = false, false }, acked: live("A", "5"),
			want: Comparison{OutOfScope: 1}},
		"in no watched namespace, deleted": {view: func(v *ObjectView) { v.Selected, v.Covered = false, false }, acked: deleted("A", "5")},
		"not selected any more": {view: func(v *ObjectView) { v.Filtered = true }, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{OutOfScope: 1}},
		"not selected by fields any more": {view: func(v *ObjectView) { v.Filtered = true }, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{OutOfScope: 1}},
		"not selected any more, and published": {view: func(v *ObjectView) { v.Filtered, v.Version = true, "6" }, publish: true, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{Deselected: 1}, deselected: true, enqueued: true},
		"not shown yet": {view: func(v *ObjectView) { v.Filtered, v.Version = true, "5" }, publish: true, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{Waiting: 1}},
		"deselected by its namespace": {view: func(v *ObjectView) { v.Selected, v.PublishDeselected = false, true }, live: object("A", "5"), acked: live("A", "5"),
			want: Comparison{Deselected: 1}, deselected: true, enqueued: true},
		"who refers to it is not known": {view: func(v *ObjectView) { v.Selected, v.ReferencesKnown = false, false }, live: object("A", "5"), acked: live("A", "5"),
			want: Comparison{Waiting: 1}},
		"the namespaces are not known": {view: func(v *ObjectView) { v.Selected, v.NamespacesKnown = false, false }, acked: live("A", "5"),
			want: Comparison{Waiting: 1}},
		"nothing covers it": {view: func(v *ObjectView) { v.Covered, v.Synced = false, false }, acked: live("A", "5"),
			want: Comparison{Waiting: 1}},
		"a create is due after its delete": {view: func(v *ObjectView) { v.Outlived.Position = 8 }, live: object("A", "5"), acked: event.Acked{UID: "A", ResourceVersion: "5", Deleted: true, Position: 8},
			enqueued: true},
		"selected, but behind": {view: func(v *ObjectView) { v.Filtered = true }, live: object("A", "4"), acked: live("A", "5"), read: &read{o: stored("A", "5")},
			want: Comparison{Waiting: 1}},
		"selected once and gone": {view: func(v *ObjectView) { v.Filtered = true }, acked: live("A", "5"), read: &read{err: notFound()},
			want: Comparison{Deleted: 1}, gone: true, enqueued: true},

		"etcd restored: an earlier state": {live: object("A", "4"), acked: live("A", "5"), read: &read{o: stored("A", "4")},
			want: Comparison{Restored: true}, raised: 1},
		"etcd restored: a deleted object is there": {live: object("A", "4"), acked: deleted("A", "5"), read: &read{o: stored("A", "4")},
			want: Comparison{Restored: true}, raised: 1},
		"etcd restored: an object before the deleted one": {live: object("Z", "2"), acked: deleted("A", "5"), read: &read{o: stored("Z", "2")},
			want: Comparison{Restored: true}, raised: 1},
		"etcd restored for the second time": {live: object("A", "4"), acked: event.Acked{UID: "A", ResourceVersion: "5", Epoch: 1}, epoch: 1,
			read: &read{o: stored("A", "4")}, want: Comparison{Restored: true}, raised: 2},
		"an earlier number in a later epoch": {live: object("A", "4"), acked: live("A", "5"), epoch: 1, enqueued: true},
		"the bus is in a later epoch": {live: object("A", "5"), acked: event.Acked{UID: "A", ResourceVersion: "4", Epoch: 3},
			want: Comparison{Waiting: 1}, raised: 3},
		"in the last epoch there is no order": {live: object("A", "4"), acked: event.Acked{UID: "A", ResourceVersion: "5", Epoch: event.LastEpoch}, epoch: event.LastEpoch,
			enqueued: true},
		"versions that are no numbers": {live: object("A", "x4"), acked: live("A", "x5"), enqueued: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			if c.gone || c.deselected {
				c.acked.Position = 9
			}
			b := newBench(t, stubCluster{get: func(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
				if asked++; c.read == nil {
					t.Fatal("the API server was asked")
				}
				if gvr != testResource.GroupVersionResource() || namespace != "default" || name != "web" {
					t.Errorf("got a read of %s %s/%s", gvr, namespace, name)
				}
				return c.read.o, c.read.err
			}})
			b.PublishDeselected = c.publish
			b.object.Live, b.resource.Epoch = c.live, c.epoch
			if c.view != nil {
				c.view(&b.object)
			}

			got, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
			if want := c.want.Waiting == 0 && !c.want.Restored; got.Decided() != want {
				t.Errorf("decided: %t, want %t", got.Decided(), want)
			}
			if c.read != nil && asked != 1 {
				t.Errorf("the API server was asked %d times, want once", asked)
			}
			var want []event.Tombstone
			if c.gone || c.deselected {
				want = []event.Tombstone{{UID: c.acked.UID, Deselected: c.deselected, Confirmed: true, Contradicts: c.acked.Position, Observed: b.Now(), Cause: event.CauseReconcile}}
			}
			if !slices.Equal(b.tombstones[testKey], want) {
				t.Errorf("tombstones: got %+v, want %+v", b.tombstones[testKey], want)
			}
			if got := len(b.enqueued) > 0; got != c.enqueued {
				t.Errorf("enqueued %v, want %v", got, c.enqueued)
			}
			if b.raised != c.raised {
				t.Errorf("raised the epoch to %d, want %d", b.raised, c.raised)
			}
		})
	}
}

// TestReconcileOneFailureDoesNotHoldUpTheOthers verifies that one object that cannot be read does
// not block the deletes of all others forever. Which objects are read before the failure is random,
// so the test retries as the reconciler does.
func TestReconcileOneFailureDoesNotHoldUpTheOthers(t *testing.T) {
	b := newBench(t, stubCluster{get: func(_ schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
		if name == "broken" {
			return nil, apierrors.NewInternalError(errors.New("conversion webhook"))
		}
		return nil, notFound()
	}})
	left := map[event.Key]event.Acked{testResource.Key("default", "broken"): live("X", "1")}
	for _, name := range []string{"a", "b", "c", "d"} {
		left[testResource.Key("default", name)] = live(name, "1")
	}
	for range 1000 {
		if _, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(left)); err == nil {
			t.Fatal("the failure is not reported")
		}
		for _, k := range b.enqueued {
			delete(left, k)
		}
		if len(left) == 1 {
			return
		}
	}
	t.Errorf("deletes that were never confirmed: %v", left)
}

// TestReconcileAnotherScope verifies the delete of a namespaced object whose definition was deleted
// and recreated as cluster-scoped. The object cannot be read, because the API server no longer
// serves the old path.
func TestReconcileAnotherScope(t *testing.T) {
	b := newBench(t, stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		t.Error("the API server was asked")
		return nil, pathNotFound()
	}})
	b.resource.Resource.Namespaced = false
	got, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{
		testKey: live("A", "5"),
		{Resource: "configmaps", Namespace: "default", Name: "done"}: deleted("B", "5"),
	}))
	if want := (Comparison{Deleted: 1}); got != want || err != nil || len(b.tombstones) != 1 || len(b.tombstones[testKey]) != 1 {
		t.Errorf("got %+v, error %v, tombstones %+v; want %+v and A gone", got, err, b.tombstones, want)
	}
}

// TestReconcileOfWhatIsNotWatched verifies that objects of an unwatched resource count as deleted
// only if the cluster certainly does not serve the resource.
func TestReconcileOfWhatIsNotWatched(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	key := event.Key{Group: "example.com", Resource: "widgets", Namespace: "default", Name: "web"}
	cluster := discoverytest.Cluster()
	without := cluster.Without("example.com/v1").Without("example.com/v1alpha1")
	withReadyz := func(err error) *discoverytest.Discovery {
		d := without
		d.REST = &fake.RESTClient{Err: err}
		return &d
	}
	definitionGone := apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, "widgets.example.com")

	for name, c := range map[string]struct {
		last, now        *discoverytest.Discovery // nil if discovery has not responded yet
		definition       error
		acked            event.Acked
		want             Comparison
		fails            bool
		publish, unknown bool
	}{
		"gone":                          {&without, &without, definitionGone, live("A", "5"), Comparison{Deleted: 1}, false, false, false},
		"gone, definitions forbidden":   {&without, &without, forbiddenError("customresourcedefinitions", "widgets.example.com"), live("A", "5"), Comparison{OutOfScope: 1}, false, false, false},
		"gone, and so the bus says":     {&without, &without, definitionGone, deleted("A", "5"), Comparison{}, false, false, false},
		"not selected":                  {&cluster, &cluster, nil, live("A", "5"), Comparison{OutOfScope: 1}, false, false, false},
		"back again":                    {&without, &cluster, nil, live("A", "5"), Comparison{Waiting: 1}, false, false, false},
		"in one version":                {&without, new(cluster.Without("example.com/v1")), nil, live("A", "5"), Comparison{Waiting: 1}, false, false, false},
		"before the first discovery":    {nil, nil, nil, live("A", "5"), Comparison{}, false, false, false},
		"its group failed":              {new(without.Failing("example.com/v1")), nil, nil, live("A", "5"), Comparison{OutOfScope: 1}, false, false, false},
		"its group fails now":           {&without, new(without.Failing("example.com/v1")), nil, live("A", "5"), Comparison{Waiting: 1}, false, false, false},
		"discovery fails now":           {&without, &discoverytest.Discovery{Err: errors.New("no answer")}, nil, live("A", "5"), Comparison{}, true, false, false},
		"the definition is there":       {&without, &without, nil, live("A", "5"), Comparison{}, true, false, false},
		"the definition's read fails":   {&without, &without, errors.New("no answer"), live("A", "5"), Comparison{}, true, false, false},
		"an APIService is there":        {&without, &without, definitionGone, live("A", "5"), Comparison{}, true, false, false},
		"its group is built in":         {&without, &without, definitionGone, live("A", "5"), Comparison{OutOfScope: 1}, false, false, false},
		"definitions are not found":     {&without, &without, pathNotFound(), live("A", "5"), Comparison{}, true, false, false},
		"not selected, and published":   {&cluster, &cluster, nil, live("A", "5"), Comparison{Deselected: 1}, false, true, false},
		"a group failed, and published": {new(cluster.Failing("apps/v1")), &cluster, nil, live("A", "5"), Comparison{OutOfScope: 1}, false, true, false},
		"who refers to it is not known": {&cluster, &cluster, nil, live("A", "5"), Comparison{Waiting: 1}, false, true, true},
		"watched again":                 {&without, &without, definitionGone, live("A", "5"), Comparison{Waiting: 1}, false, false, false},
		"APIServices are forbidden":     {&without, &without, definitionGone, live("A", "5"), Comparison{OutOfScope: 1}, false, false, false},
		"the API server is not ready":   {&without, withReadyz(errors.New("not ready")), definitionGone, live("A", "5"), Comparison{}, true, false, false},
		"its readiness is forbidden":    {&without, withReadyz(forbiddenError("", "")), definitionGone, live("A", "5"), Comparison{Deleted: 1}, false, false, false},
		"its informers restart":         {&cluster, &cluster, nil, live("A", "5"), Comparison{Waiting: 1}, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b *bench
			b = newBench(t, stubCluster{get: func(gvr schema.GroupVersionResource, _, definition string) (*unstructured.Unstructured, error) {
				if gvr != discovery.DefinitionResource || definition != "widgets.example.com" {
					t.Errorf("got a read of %s %s", gvr, definition)
				}
				b.resource.Watched = name == "watched again"
				return &unstructured.Unstructured{}, c.definition
			}, list: func(gvr schema.GroupVersionResource, _ string, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				all := &unstructured.UnstructuredList{}
				switch {
				case gvr != discovery.APIServiceResource:
				case name == "APIServices are forbidden":
					return nil, forbiddenError("apiservices", "")
				case name == "an APIService is there":
					all.Items = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{
						"group": "example.com", "version": "v7", "service": map[string]any{"name": "away"},
					}}}}
				case name == "its group is built in":
					all.Items = []unstructured.Unstructured{{Object: map[string]any{
						"metadata": map[string]any{"labels": map[string]any{discovery.AutoRegisteredLabel: "onstart"}},
						"spec":     map[string]any{"group": "example.com", "version": "v7"},
					}}}
				}
				return all, nil
			}})
			b.resource = ResourceView{ReferencesKnown: !c.unknown, Selected: name == "its informers restart"}
			b.PublishDeselected = c.publish
			if c.now != nil {
				b.Discovery = *c.now
			}
			if c.last != nil {
				var err error
				if b.resource.Catalog, _, err = discovery.Discover(t.Context(), *c.last, nil); err != nil {
					t.Fatal(err)
				}
			}
			got, err := b.Reconcile(t.Context(), widgets, acked(map[event.Key]event.Acked{key: c.acked}))
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
			if got, want := len(b.tombstones[key]), c.want.Deleted+c.want.Deselected; got != want || len(b.enqueued) != want {
				t.Errorf("%d tombstones, want %d", got, want)
			}
			if b.forgotten != (c.want.Deleted == 1) {
				t.Errorf("its references are forgotten: %v", b.forgotten)
			}
		})
	}
}

// TestReconcileEndsWithItsContext verifies that a comparison ends with its context and concludes
// nothing.
func TestReconcileEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		cancel()
		return nil, ctx.Err()
	}})
	_, err := b.Reconcile(ctx, testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: live("A", "5")}))
	if !errors.Is(err, context.Canceled) || len(b.tombstones) > 0 {
		t.Errorf("got error %v, tombstones %+v", err, b.tombstones)
	}
}

// TestAReadWithoutAnAnswerEnds verifies that a read times out if the API server does not respond.
// Otherwise the read would block all comparisons. Seed 5 of the torture suite froze the API server
// during a read.
func TestAReadWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, silentCluster{})
		began := time.Now()
		_, err := b.Reconcile(t.Context(), testResource.GroupResource(), acked(map[event.Key]event.Acked{testKey: live("A", "5")}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute { // on the synctest clock
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
