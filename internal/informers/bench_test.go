package informers

import (
	"context"
	"iter"
	"log/slog"
	"maps"
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
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/decode"
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
		Informers: s, Discovery: s.config.Discovery, Reads: s.config.Reads, PublishDeselected: s.config.PublishDeselected,
		Now: func() time.Time { return s.config.Now() }, Logger: s.log, Registerer: s.config.Registerer,
	})
}

type syncedRegistration struct {
	cache.ResourceEventHandlerRegistration
}

func (syncedRegistration) HasSynced() bool { return true }

// sync makes the bench's informers count as synced.
func (b *bench) sync() {
	for _, i := range b.watched.informers.All() {
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
	f.term.Settle(k, acked, f.set.Interest(k), f.set.Shown(k))
	f.set.Settled(k)
}

func (f stubForwarder) Acknowledged(k event.Key, acked event.Acked, o *event.Object) {
	f.term.Acknowledge(k, acked, o, f.set.Interest(k))
	f.set.Settled(k)
}

func (f stubForwarder) Unanswered(k event.Key, acked, sent event.Acked) {
	f.term.Unanswered(k, acked, sent, nil, f.set.Interest(k))
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
	c.Converter, c.Logger, c.Registerer, c.Now = decode.NewConverter(nil, ""), slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now
	c.Enqueue = func(k event.Key) { b.mu.Lock(); defer b.mu.Unlock(); b.enqueued = append(b.enqueued, k) }
	c.EnqueueLowPriority = c.Enqueue
	c.Compare = func(gr schema.GroupResource) { b.mu.Lock(); defer b.mu.Unlock(); b.compared = append(b.compared, gr) }
	if c.Dynamic == nil {
		c.Dynamic = stubCluster{}
	}
	c.Reads = c.Dynamic
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
	b.watched.alignment.Store(&alignment{complete: true})
	namespaces := c.Namespaces.Include
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		i, err := b.newInformer(b.watched, namespace)
		if err != nil {
			t.Fatal(err)
		}
		b.watched.informers.Put(namespace, i)
	}
	b.Set.watched.Put(r.GroupResource(), b.watched)
	return b
}

// watch adds another resource with one informer, which has not listed yet.
func (b *bench) watch(t *testing.T, r event.Resource, followed bool) *watched {
	t.Helper()
	w := b.newWatched(r, followed, func() {})
	w.alignment.Store(&alignment{complete: true})
	i, err := b.newInformer(w, "")
	if err != nil {
		t.Fatal(err)
	}
	w.informers.Put("", i)
	b.Set.watched.Put(r.GroupResource(), w)
	return w
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
