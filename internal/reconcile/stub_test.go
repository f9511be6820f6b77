package reconcile

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/event"
)

var (
	testResource = event.Resource{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	testKey      = testResource.Key("default", "web")
)

// The labels of a selected and of another namespace.
var selected, other = map[string]string{"team": "shop"}, map[string]string{}

func object(uid, version string) *event.Object {
	return &event.Object{
		Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: version, Body: event.JSON([]byte(`{}`)),
	}
}

func live(uid, version string) event.Acked { return event.Acked{UID: uid, ResourceVersion: version} }

func deleted(uid, version string) event.Acked {
	return event.Acked{UID: uid, ResourceVersion: version, Deleted: true}
}

func forbiddenError(resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New("no"))
}

// pathNotFound returns client-go's error for a resource that the API server does not serve.
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

// existing is the answer to the list of a namespace that exists.
func existing() *unstructured.UnstructuredList {
	return &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{}}}
}

// errInconsistent is the answer of a stubCluster to a read that a cache may serve.
var errInconsistent = errors.New("the read is not consistent: it sets a resourceVersion")

// stubCluster is a dynamic client that supports only consistent gets and lists. It returns a list in
// pages, as an API server does.
type stubCluster struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	get func(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// list is optional. By default, every namespace exists.
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

func (s stubCluster) Get(_ context.Context, name string, o metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if o.ResourceVersion != "" {
		return nil, errInconsistent
	}
	return s.get(s.gvr, s.namespace, name)
}

func (s stubCluster) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	switch {
	case o.ResourceVersion != "":
		return nil, errInconsistent
	case s.list == nil:
		return existing(), nil
	}
	list, err := s.list(s.gvr, s.namespace, o)
	if err != nil {
		return nil, err
	}
	first, _ := strconv.Atoi(o.Continue)
	if list.Items = list.Items[first:]; o.Limit > 0 && len(list.Items) > int(o.Limit) {
		list.Items = list.Items[:o.Limit]
		list.SetContinue(strconv.Itoa(first + int(o.Limit)))
	}
	return list, nil
}

// silentCluster never responds to a get.
type silentCluster struct{ stubCluster }

func (s silentCluster) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}
func (s silentCluster) Namespace(string) dynamic.ResourceInterface { return s }

func (s silentCluster) Get(ctx context.Context, _ string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// bench is a Comparer whose informers return the same view for every key and record its conclusions.
type bench struct {
	*Comparer
	resource ResourceView
	object   ObjectView
	now      time.Time

	tombstones map[event.Key][]event.Tombstone
	enqueued   []event.Key
	raised     uint16
	forgotten  bool // the references of the resource
	left       int  // calls of ForgetOthers
	markers    error
}

var _ Informers = (*bench)(nil)

// newBench returns a bench with a resource that is watched, synced and selected.
func newBench(t *testing.T, reads dynamic.Interface) *bench {
	t.Helper()
	b := &bench{
		resource: ResourceView{Watched: true, Resource: testResource, ReferencesKnown: true},
		object: ObjectView{
			Covered: true, Synced: true, Selected: true, NamespacesKnown: true, NamespaceExists: true, ReferencesKnown: true,
		},
		now: time.Unix(1000, 0), tombstones: map[event.Key][]event.Tombstone{},
	}
	b.Comparer = New(Config{
		Informers: b, Reads: reads, Now: func() time.Time { return b.now },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	return b
}

func (b *bench) DescribeResource(schema.GroupResource) ResourceView { return b.resource }
func (b *bench) DescribeObject(event.Key) ObjectView                { return b.object }

func (b *bench) SelectsNamespace(_ string, labels map[string]string) bool {
	return labels["team"] == "shop"
}

func (b *bench) RenewMarkers(context.Context, schema.GroupResource) error { return b.markers }

func (b *bench) AddTombstone(k event.Key, t event.Tombstone) {
	b.tombstones[k] = append(b.tombstones[k], t)
	b.EnqueueLowPriority(k)
}

func (b *bench) MarkOutlived(k event.Key, is event.Outlived) {
	b.object.Outlived = is
	b.EnqueueLowPriority(k)
}

func (b *bench) EnqueueLowPriority(k event.Key)               { b.enqueued = append(b.enqueued, k) }
func (b *bench) RaiseEpoch(_ schema.GroupResource, to uint16) { b.raised = to }
func (b *bench) ForgetReferences(schema.GroupResource)        { b.forgotten = true }
func (b *bench) ForgetOthers(event.Key)                       { b.left++ }
