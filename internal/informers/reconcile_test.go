package informers

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/event"
)

func forbiddenError(resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New("no"))
}

// pathNotFound is what the API server says of a resource that it does not serve,
// as client-go puts it.
func pathNotFound() error {
	return apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "404 page not found", 0, true)
}

func notFound() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "web")
}

func stored(uid, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetName("web")
	u.SetUID(object(uid, version).UID)
	u.SetResourceVersion(version)
	return u
}

func acked(all map[event.Key]event.Acked) iter.Seq2[event.Key, event.Acked] { return maps.All(all) }

type syncedRegistration struct {
	cache.ResourceEventHandlerRegistration
}

func (syncedRegistration) HasSynced() bool { return true }

// sync has the bench's informers count as synced.
func (b *bench) sync() {
	for _, i := range b.watched.informers {
		i.registration = syncedRegistration{}
	}
}

// TestReconcile has a case for each way in which bus and informer may disagree,
// and what a consistent read then says.
func TestReconcile(t *testing.T) {
	type read struct {
		o   *unstructured.Unstructured
		err error
	}
	for name, c := range map[string]struct {
		config   Config
		unsynced bool
		live     *event.Object
		acked    event.Acked
		epoch    uint16 // ours
		read     *read  // nil: it must not be asked for

		want     Comparison
		gone     bool // a tombstone of the bus's UID
		enqueued bool
		raised   uint16
		fails    bool
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
		"the informer has not synced": {unsynced: true, acked: live("A", "5"),
			want: Comparison{Waiting: 1}},

		"in no watched namespace": {config: Config{Namespaces: NamespaceSelection{Include: []string{"team-a"}}}, acked: live("A", "5"),
			want: Comparison{OutOfScope: 1}},
		"in no watched namespace, deleted": {config: Config{Namespaces: NamespaceSelection{Include: []string{"team-a"}}}, acked: deleted("A", "5")},
		"not selected any more": {config: Config{LabelSelector: "app=web"}, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{OutOfScope: 1}},
		"not selected by fields any more": {config: Config{FieldSelector: "metadata.name=web"}, acked: live("A", "5"), read: &read{o: stored("A", "6")},
			want: Comparison{OutOfScope: 1}},
		"selected, but behind": {config: Config{LabelSelector: "app=web"}, live: object("A", "4"), acked: live("A", "5"), read: &read{o: stored("A", "5")},
			want: Comparison{Waiting: 1}},
		"selected once and gone": {config: Config{LabelSelector: "app=web"}, acked: live("A", "5"), read: &read{err: notFound()},
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
		"versions that are no numbers": {live: object("A", "x4"), acked: live("A", "x5"), enqueued: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			c.config.Dynamic = stubCluster{get: func(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
				if asked++; c.read == nil {
					t.Fatal("the API server was asked")
				}
				if gvr != testResource.GroupVersionResource() || namespace != "default" || name != "web" {
					t.Errorf("asked for %s %s/%s", gvr, namespace, name)
				}
				return c.read.o, c.read.err
			}}
			b := newBench(t, c.config, testResource)
			if !c.unsynced {
				b.sync()
			}
			if c.live != nil {
				b.index(c.live)
			}
			b.epoch.Store(uint32(c.epoch))
			b.nextEpoch = c.epoch

			got, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: c.acked}))
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
			if c.read != nil && asked != 1 {
				t.Errorf("the API server was asked %d times, want once", asked)
			}
			if want := map[bool]string{true: "[" + c.acked.UID + ".?]", false: "nothing"}[c.gone]; describeDirty(b.dirty) != want {
				t.Errorf("remembered %q, want %q", describeDirty(b.dirty), want)
			}
			if got := len(b.takeEnqueued()) > 0; got != c.enqueued {
				t.Errorf("enqueued %v, want %v", got, c.enqueued)
			}
			if want := max(c.raised, c.epoch); b.nextEpoch != want {
				t.Errorf("next epoch is %d, want %d", b.nextEpoch, want)
			}
			if b.Epoch() != c.epoch {
				t.Error("the epoch has begun before the informers were started anew")
			}
		})
	}
}

// TestReconcileOneFailureDoesNotHoldUpTheOthers: a single object that cannot be
// read must not keep the deletes of all others from the bus for ever. Which are
// read before the failure is chance, so it is tried as the reconciler would.
func TestReconcileOneFailureDoesNotHoldUpTheOthers(t *testing.T) {
	b := newBench(t, Config{Dynamic: stubCluster{get: func(_ schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
		if name == "broken" {
			return nil, apierrors.NewInternalError(errors.New("conversion webhook"))
		}
		return nil, notFound()
	}}}, testResource)
	b.sync()
	left := map[event.Key]event.Acked{testResource.Key("default", "broken"): live("X", "1")}
	for _, name := range []string{"a", "b", "c", "d"} {
		left[testResource.Key("default", name)] = live(name, "1")
	}
	for range 1000 {
		if _, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(left)); err == nil {
			t.Fatal("the failure is not reported")
		}
		for _, k := range b.takeEnqueued() {
			delete(left, k)
		}
		if len(left) == 1 {
			return
		}
	}
	t.Errorf("never confirmed: %v", left)
}

// TestReconcileAnotherScope: a definition that was removed and made again may be
// cluster-scoped where it was namespaced. The API server does not know the old
// path, so it cannot be asked.
func TestReconcileAnotherScope(t *testing.T) {
	r := testResource
	r.Namespaced = false
	b := newBench(t, Config{Dynamic: stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		t.Error("the API server was asked")
		return nil, pathNotFound()
	}}}, r)
	b.sync()
	got, err := b.Reconcile(t.Context(), testKey.GroupResource(), acked(map[event.Key]event.Acked{
		testKey: live("A", "5"),
		{Resource: "configmaps", Namespace: "default", Name: "done"}: deleted("B", "5"),
	}))
	if want := (Comparison{Deleted: 1}); got != want || err != nil || describeDirty(b.dirty) != "[A.?]" {
		t.Errorf("got %+v, error %v, remembered %q; want %+v and A gone", got, err, describeDirty(b.dirty), want)
	}
}

// TestReconcileOfWhatIsNotWatched: only a resource that is certainly not served
// has its objects deleted.
func TestReconcileOfWhatIsNotWatched(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	key := event.Key{Group: "example.com", Resource: "widgets", Namespace: "default", Name: "web"}
	cluster := testCluster()
	without := cluster.without("example.com/v1").without("example.com/v1alpha1")
	definitionGone := apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, "widgets.example.com")

	for name, c := range map[string]struct {
		last, now  *stubDiscovery // nil for no answer yet
		definition error
		acked      event.Acked
		want       Comparison
		fails      bool
	}{
		"gone":                        {&without, &without, definitionGone, live("A", "5"), Comparison{Deleted: 1}, false},
		"gone, definitions forbidden": {&without, &without, forbiddenError("customresourcedefinitions", "widgets.example.com"), live("A", "5"), Comparison{Deleted: 1}, false},
		"gone, and so the bus says":   {&without, &without, definitionGone, deleted("A", "5"), Comparison{}, false},
		"not selected":                {&cluster, &cluster, nil, live("A", "5"), Comparison{OutOfScope: 1}, false},
		"back again":                  {&without, &cluster, nil, live("A", "5"), Comparison{Waiting: 1}, false},
		"in one version":              {&without, new(cluster.without("example.com/v1")), nil, live("A", "5"), Comparison{Waiting: 1}, false},
		"before the first discovery":  {nil, nil, nil, live("A", "5"), Comparison{}, false},
		"its group failed":            {new(without.failing("example.com/v1")), nil, nil, live("A", "5"), Comparison{OutOfScope: 1}, false},
		"its group fails now":         {&without, new(without.failing("example.com/v1")), nil, live("A", "5"), Comparison{Waiting: 1}, false},
		"discovery fails now":         {&without, &stubDiscovery{err: errors.New("no answer")}, nil, live("A", "5"), Comparison{}, true},
		"the definition is there":     {&without, &without, nil, live("A", "5"), Comparison{}, true},
		"the definition's read fails": {&without, &without, errors.New("no answer"), live("A", "5"), Comparison{}, true},
		"an APIService is there":      {&without, &without, definitionGone, live("A", "5"), Comparison{}, true},
		"definitions are not found":   {&without, &without, pathNotFound(), live("A", "5"), Comparison{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dynamic: stubCluster{get: func(gvr schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
				if gvr != definitionResource || name != "widgets.example.com" {
					t.Errorf("asked for %s %s", gvr, name)
				}
				return &unstructured.Unstructured{}, c.definition
			}, list: func(gvr schema.GroupVersionResource, _ string, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
				all := &unstructured.UnstructuredList{}
				if gvr == apiServiceResource && name == "an APIService is there" {
					all.Items = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{
						"group": "example.com", "version": "v7", "service": map[string]any{"name": "away"},
					}}}}
				}
				return all, nil
			}}}
			if c.now != nil {
				config.Discovery = *c.now
			}
			b := newBench(t, config, testResource)
			if c.last != nil {
				b.answer = &answer{catalogue: mustDiscover(t, *c.last)}
			}
			got, err := b.Reconcile(t.Context(), widgets, acked(map[event.Key]event.Acked{key: c.acked}))
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
			gone := slices.Equal(uids(b.Lookup(key).Tombstones), []string{"A"})
			if want := c.want.Deleted == 1; gone != want || len(b.takeEnqueued()) != c.want.Deleted {
				t.Errorf("deleted %v, want %v", gone, want)
			}
		})
	}
}

// TestReconcileEndsWithItsContext, without a conclusion.
func TestReconcileEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, Config{Dynamic: stubCluster{get: func(schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
		cancel()
		return nil, ctx.Err()
	}}}, testResource)
	b.sync()
	_, err := b.Reconcile(ctx, testKey.GroupResource(), acked(map[event.Key]event.Acked{testKey: live("A", "5")}))
	if !errors.Is(err, context.Canceled) || describeDirty(b.dirty) != "nothing" {
		t.Errorf("got error %v, remembered %q", err, describeDirty(b.dirty))
	}
}

// silentCluster never answers.
type silentCluster struct{ stubCluster }

func (s silentCluster) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}
func (s silentCluster) Namespace(string) dynamic.ResourceInterface { return s }

func (s silentCluster) Get(ctx context.Context, _ string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAReadWithoutAnAnswerEnds: it would hold up all comparisons. Seed 5 of the torture
// suite froze the API server in the middle of one.
func TestAReadWithoutAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{Dynamic: silentCluster{}}, testResource)
		b.sync()
		began := time.Now()
		_, err := b.Reconcile(t.Context(), testResource.GroupResource(), acked(map[event.Key]event.Acked{testKey: live("A", "5")}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute { // of the bubble's clock
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
