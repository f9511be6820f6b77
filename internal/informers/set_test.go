package informers

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/apistream"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/informers/firstsync"
	"github.com/kuberelay/kuberelay/internal/ledger"
	"github.com/kuberelay/kuberelay/internal/reconcile"
)

var (
	testResource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	testKey      = testResource.Key("default", "web")
)

func object(uid, version string) *event.Object {
	return &event.Object{
		Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: version, Body: event.JSON([]byte(`{}`)),
	}
}

func live(uid, version string) event.Acked { return event.Acked{UID: uid, ResourceVersion: version} }

func deleted(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true}
}

// stubCluster is a dynamic client that supports only get and list.
type stubCluster struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	get  func(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	list func(gvr schema.GroupVersionResource, namespace string, o metav1.ListOptions) (*unstructured.UnstructuredList, error)

	gvr       schema.GroupVersionResource
	namespace string
}

func (s stubCluster) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	s.gvr = gvr
	return s
}

func (s stubCluster) Namespace(namespace string) dynamic.ResourceInterface {
	s.namespace = namespace
	return s
}

func (s stubCluster) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return s.get(s.gvr, s.namespace, name)
}

func (s stubCluster) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if s.list == nil {
		return &unstructured.UnstructuredList{}, nil
	}
	return s.list(s.gvr, s.namespace, o)
}

// stubMarkers has a function for each method. A nil function does nothing and returns no error.
type stubMarkers struct {
	completed func() (bool, error)
	started   func() error
	finished  func(objects int) error
}

var _ firstsync.Markers = stubMarkers{}

func (s stubMarkers) Completed(context.Context, schema.GroupResource) (bool, error) {
	if s.completed == nil {
		return false, nil
	}
	return s.completed()
}

func (s stubMarkers) Started(context.Context, event.Resource) error {
	if s.started == nil {
		return nil
	}
	return s.started()
}

func (s stubMarkers) Finished(_ context.Context, _ event.Resource, objects int) error {
	if s.finished == nil {
		return nil
	}
	return s.finished(objects)
}

// newComparer returns a Comparer that uses a Set as its informers.
func newComparer(s *Set) *reconcile.Comparer {
	return reconcile.New(reconcile.Config{
		Informers: s, Discovery: s.config.Discovery, Reads: s.reads(), PublishDeselected: s.config.PublishDeselected,
		Now: func() time.Time { return s.config.Now() }, Logger: s.log, Registerer: s.config.Registerer,
	})
}

type syncedRegistration struct {
	cache.ResourceEventHandlerRegistration
}

func (syncedRegistration) HasSynced() bool { return true }

// sync makes the bench's informers count as synced.
func (b *bench) sync() {
	for _, i := range b.watched.informers {
		i.registration = syncedRegistration{}
	}
}

func acked(all map[event.Key]event.Acked) iter.Seq2[event.Key, event.Acked] { return maps.All(all) }

// stubForwarder records results from the bus, as the forwarder does.
type stubForwarder struct {
	set  *Set
	term *ledger.Term
}

func (f stubForwarder) Settle(k event.Key, acked event.Acked) {
	f.term.Settle(k, acked, f.set.Interest(k))
	f.set.Settled(k)
}

func (f stubForwarder) Acknowledged(k event.Key, acked event.Acked, o *event.Object) {
	f.term.Acknowledge(k, acked, o, f.set.Interest(k))
	f.set.Settled(k)
}

func (f stubForwarder) Unanswered(k event.Key, acked, sent event.Acked) {
	f.term.Unanswered(k, acked, sent, f.set.Interest(k))
	f.set.Settled(k)
}

// bench is a Set with the informers of one resource, which do not run. The test changes the indexer
// and calls the handlers in the same order as client-go.
type bench struct {
	*Set
	*reconcile.Comparer
	stubForwarder
	watched *watched

	mu       sync.Mutex
	enqueued []event.Key
	compared []schema.GroupResource
}

func newBench(t *testing.T, c Config, r event.Resource) *bench {
	t.Helper()
	b := &bench{}
	c.Converter, c.Logger, c.Registerer, c.Now = event.NewConverter(nil, ""), slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now
	c.Enqueue = func(k event.Key) { b.mu.Lock(); defer b.mu.Unlock(); b.enqueued = append(b.enqueued, k) }
	c.EnqueueLowPriority = c.Enqueue
	c.Compare = func(gr schema.GroupResource) { b.mu.Lock(); defer b.mu.Unlock(); b.compared = append(b.compared, gr) }
	if c.Dynamic == nil {
		c.Dynamic = stubCluster{}
	}
	if c.Markers == nil {
		c.Markers = stubMarkers{}
	}
	var err error
	if c.Streams, err = apistream.New(&rest.Config{Host: "127.0.0.1:0"}); err != nil { // an informer that starts can't connect
		t.Fatal(err)
	}
	c.Ledger = ledger.New()
	b.Set = New(c)
	b.stubForwarder = stubForwarder{b.Set, c.Ledger.NewTerm()}
	b.Comparer = newComparer(b.Set)
	b.watched = b.newWatched(r, false, func() {})
	b.watched.aligned = true
	namespaces := c.Namespaces.Include
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		i, err := b.newInformer(b.watched, namespace)
		if err != nil {
			t.Fatal(err)
		}
		b.watched.informers[namespace] = i
	}
	b.Set.watched[r.GroupResource()] = b.watched
	return b
}

func (b *bench) informer(o *event.Object) *informer {
	return b.watched.informer(b.watched.resource.Key(o.Namespace, o.Name))
}

// index stores an object in the indexer, as client-go does before it calls the handler.
func (b *bench) index(o *event.Object) {
	_ = b.informer(o).shared.GetStore().Add(o)
}

func (b *bench) list(o *event.Object) { b.index(o); b.onAdd(b.informer(o), o, true) }
func (b *bench) add(o *event.Object)  { b.index(o); b.onAdd(b.informer(o), o, false) }

func (b *bench) update(o *event.Object) {
	old := b.informer(o).get(b.watched.resource.Key(o.Namespace, o.Name))
	b.index(o)
	b.onUpdate(b.informer(o), old, o)
}

func (b *bench) delete(o *event.Object) {
	_ = b.informer(o).shared.GetStore().Delete(o)
	b.onDelete(b.informer(o), o)
}

// takeEnqueued returns the keys enqueued since the last call.
func (b *bench) takeEnqueued() []event.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.enqueued
	b.enqueued = nil
	return keys
}

func uids(tombstones []event.Tombstone) (all []string) {
	for _, t := range tombstones {
		all = append(all, t.UID)
	}
	return all
}

// TestEveryNotificationIsEnqueued verifies that every notification enqueues its key, even if
// nothing has changed, as in a resync. A lookup shows the new state when the key is enqueued.
func TestEveryNotificationIsEnqueued(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	for _, c := range []struct {
		what   string
		notify func()
		live   string
		gone   []string
	}{
		{"list", func() { b.list(object("A", "1")) }, "A.1", nil},
		{"resync", func() { b.update(object("A", "1")) }, "A.1", nil},
		{"update", func() { b.update(object("A", "2")) }, "A.2", nil},
		{"recreated, as one update", func() { b.update(object("B", "5")) }, "B.5", []string{"A"}},
		{"delete", func() { b.delete(object("B", "6")) }, "", []string{"A", "B"}},
		{"add", func() { b.add(object("C", "7")) }, "C.7", []string{"A", "B"}},
		{"delete that the watch missed", func() {
			b.index(object("D", "9")) // removes C from the indexer
			b.onDelete(b.watched.informers[""], cache.DeletedFinalStateUnknown{Key: "default/web", Obj: object("C", "7")})
		}, "D.9", []string{"A", "B", "C"}},
	} {
		c.notify()
		if got := b.takeEnqueued(); len(got) != 1 || got[0] != testKey {
			t.Errorf("%s: enqueued %v, want %v", c.what, got, testKey)
		}
		v, live := b.Lookup(testKey), ""
		if v.Live != nil {
			live = string(v.Live.UID) + "." + v.Live.ResourceVersion
		}
		if got := uids(v.Tombstones); live != c.live || !slices.Equal(got, c.gone) {
			t.Errorf("%s: live %q, gone %v; want %q, %v", c.what, live, got, c.live, c.gone)
		}
		if v.Resource != testResource || v.Observed.IsZero() {
			t.Errorf("%s: got resource %+v, observed %s", c.what, v.Resource, v.Observed)
		}
	}
}

// TestADeleteOfNobodyKnowsWhat verifies that a delete notification without an object does not crash
// the handler and requests a comparison, so that the delete is not lost. client-go may not have the
// object that a relist has shown to be missing.
func TestADeleteOfNobodyKnowsWhat(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.onDelete(b.watched.informers[""], cache.DeletedFinalStateUnknown{Key: "default/web"})
	if want := testResource.GroupResource(); !slices.Equal(b.compared, []schema.GroupResource{want}) {
		t.Errorf("compared %v, want %v", b.compared, want)
	}
}

// TestWhatIsLiveIsNotGone verifies that a view of a live object contains no tombstone of its UID.
// Such a tombstone exists for a while if the object left the selection and returned, or was found
// to be gone while the indexer is behind. If its delete were published, the last event of an
// existing object would be a delete.
func TestWhatIsLiveIsNotGone(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.ledger.AddTombstone(testKey, event.Tombstone{UID: "Z", Cause: event.CauseReconcile})
	b.ledger.AddTombstone(testKey, event.Tombstone{UID: "A", Cause: event.CauseReconcile})
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z"}) {
		t.Errorf("gone while live: %v, want [Z]", got)
	}
	b.delete(object("A", "2"))
	if got := uids(b.Lookup(testKey).Tombstones); !slices.Equal(got, []string{"Z", "A"}) {
		t.Errorf("gone after the delete: %v, want [Z A]", got)
	}
}

// TestLookupOfWhatIsNotWatched verifies that a view of an unwatched key contains its tombstones.
func TestLookupOfWhatIsNotWatched(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Include: []string{"default"}}}, testResource)
	for name, k := range map[string]event.Key{
		"another resource":  {Group: "example.com", Resource: "widgets", Namespace: "default", Name: "web"},
		"another namespace": testResource.Key("kube-system", "web"),
	} {
		t.Run(name, func(t *testing.T) {
			b.ledger.AddTombstone(k, event.Tombstone{UID: "A"})
			v := b.Lookup(k)
			if v.Live != nil || !slices.Equal(uids(v.Tombstones), []string{"A"}) || v.Cause != event.CauseReconcile || v.Observed.IsZero() {
				t.Errorf("got %+v", v)
			}
		})
	}
}

// TestFailing verifies that setFailing reports a change only if the reason changes, not the text,
// because each change is logged.
func TestFailing(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	i := b.watched.informers[""]
	i.began = time.Time{}
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	forbidden := forbiddenError("configmaps", "")
	for _, c := range []struct {
		what    string
		err     error
		now     time.Time
		changed bool
		since   time.Time
	}{
		{"fails", forbidden, first, true, first},
		{"fails again for the same reason", forbiddenError("configmaps", "web"), second, false, first},
		{"fails for another reason", context.DeadlineExceeded, second, true, second},
		{"works", nil, second, true, second},
		{"works still", nil, first, false, second},
	} {
		if got := i.setFailing(c.err, c.now); got != c.changed {
			t.Errorf("%s: changed %v, want %v", c.what, got, c.changed)
		}
		if got := i.status(); got.Failing != c.err || got.Since != c.since { //nolint:errorlint // it is kept as it is
			t.Errorf("%s: got %v since %s, want %v since %s", c.what, got.Failing, got.Since, c.err, c.since)
		}
	}
}

// TestStopForgetsWhatWasReported verifies that the states that a stopped informer reported are
// forgotten, and tombstones are kept. The states may be outdated, and would block the next first
// sync.
func TestStopForgetsWhatWasReported(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.update(object("B", "5"))
	other := event.Key{Resource: "pods", Namespace: "default", Name: "web"}
	b.ledger.Observe(other, nil, object("P", "1"), event.CauseWatch, true, time.Unix(1, 0))
	close(b.watched.stopped)
	b.stop([]*watched{b.watched})
	v := event.View{Live: object("B", "5")}
	b.ledger.Describe(testKey, &v)
	if !slices.Equal(uids(v.Tombstones), []string{"A"}) || v.Cause != "" {
		t.Errorf("got %+v, want the tombstone of A, and nothing of B", v)
	}
	if b.ledger.DirtyLen() != 2 || b.ledger.FirstSyncLeft(other.GroupResource()) != 1 {
		t.Error("another resource was forgotten as well")
	}
}

// aheadOf is an informer whose reflector is ahead of its indexer.
type aheadOf struct{ cache.SharedIndexInformer }

func (aheadOf) LastSyncResourceVersion() string { return "9" }

// TestVersionOfTheIndexer verifies that views contain the resourceVersion of the indexer. Before the
// fix, they contained that of the reflector, whose change had not reached the indexer yet. So an
// existing object seemed to have left the selection.
func TestVersionOfTheIndexer(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.watched.informers[""].shared = aheadOf{b.watched.informers[""].shared}
	b.list(object("A", "5"))
	if got := b.DescribeObject(testKey).Version; got != "5" {
		t.Errorf("a comparison takes version %q for seen, want 5", got)
	}
	if got := b.Lookup(testKey).Version; got != "5" {
		t.Errorf("a decision takes version %q for seen, want 5", got)
	}
}

// TestEnqueueAllIncludesTheDead verifies that EnqueueAll enqueues dirty keys without an object.
// After the bus lost its end, it no longer needs their deletes. In an earlier version, such a key
// stayed dirty because nothing enqueued it.
func TestEnqueueAllIncludesTheDead(t *testing.T) {
	b := newBench(t, Config{}, testResource)
	b.list(object("A", "1"))
	b.delete(object("A", "2"))
	b.takeEnqueued()
	b.EnqueueAll()
	if got := b.takeEnqueued(); !slices.Equal(got, []event.Key{testKey}) {
		t.Errorf("enqueued %v, want %v", got, testKey)
	}
}
