package e2e

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/replica"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// informer is a client-go informer that lists and watches a replica of the bus instead of the API
// server.
type informer struct {
	cache.SharedIndexInformer
	lists *lists

	mu      sync.Mutex
	handled map[string]string // resourceVersions by name, from the event handlers
}

// lists counts a reflector's list requests, including streaming lists.
type lists struct {
	*replica.ListerWatcher
	classic bool // disables streaming lists
	n       atomic.Int32
}

func (l *lists) IsWatchListSemanticsUnSupported() bool { return l.classic }

func (l *lists) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l.n.Add(1)
	return l.ListerWatcher.ListWithContext(ctx, o)
}

func (l *lists) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		l.n.Add(1)
	}
	return l.ListerWatcher.WatchWithContext(ctx, o)
}

// runInformer runs an informer for the ConfigMaps in one namespace until the test ends.
func runInformer(t *testing.T, bus *replica.Bus, namespace string, object runtime.Object, classic bool) *informer {
	t.Helper()
	l := &lists{classic: classic, ListerWatcher: bus.ListerWatcher(configMaps, replica.Options{Cluster: clusterName, Namespace: namespace, Object: object})}
	i := &informer{SharedIndexInformer: cache.NewSharedIndexInformer(l, object, 0, cache.Indexers{}), lists: l, handled: map[string]string{}}
	set := func(o any) {
		i.mu.Lock()
		defer i.mu.Unlock()
		m, _ := meta.Accessor(o)
		i.handled[m.GetName()] = m.GetResourceVersion()
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			m, _ := meta.Accessor(o)
			i.mu.Lock()
			defer i.mu.Unlock()
			delete(i.handled, m.GetName())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { i.RunWithContext(t.Context()) })
	t.Cleanup(running.Wait)
	return i
}

// equals compares the informer's store with the objects from the API server.
func (i *informer) equals(of *unstructured.UnstructuredList, typed *corev1.ConfigMapList) error {
	want, versions := map[string]any{}, map[string]string{}
	for n := range of.Items {
		o := &of.Items[n]
		want[o.GetName()], versions[o.GetName()] = asPublished(o), o.GetResourceVersion()
	}
	for n := range typed.Items {
		typed.Items[n].ManagedFields = nil
	}
	store := i.GetStore().List()
	if len(store) != len(want) {
		return fmt.Errorf("the store has %d objects, the API server %d", len(store), len(want))
	}
	for _, o := range store {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		equal := false
		switch o := o.(type) {
		case *unstructured.Unstructured:
			equal = reflect.DeepEqual(asPublished(o), want[o.GetName()])
		case *corev1.ConfigMap:
			for n := range typed.Items {
				equal = equal || apiequality.Semantic.DeepEqual(*o, typed.Items[n])
			}
		case *metav1.PartialObjectMetadata:
			for n := range typed.Items {
				equal = equal || apiequality.Semantic.DeepEqual(o.ObjectMeta, typed.Items[n].ObjectMeta)
			}
		}
		if !equal {
			return fmt.Errorf("the store has %v, the API server %v", o, want[m.GetName()])
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !maps.Equal(i.handled, versions) {
		return fmt.Errorf("the handlers were told %v, the API server has %v", i.handled, versions)
	}
	return nil
}

// restartable is a bus that can be killed and can lose all its data.
type restartable interface {
	Kill()
	Forget()
	Start()
}

// TestInformersOnTheBus_Slow verifies that stock informers that read the bus hold the same objects as the
// API server, whatever happens to the forwarder and the bus. The informers list again only after the
// bus has lost its messages.
func TestInformersOnTheBus_Slow(t *testing.T) {
	t.Run("nats", func(t *testing.T) {
		server := natsServer(t)
		bus, err := replica.NATS(t.Context(), replica.NATSOptions{URLs: []string{server.URL}})
		informersOnTheBus(t, bus, err, server, server.URL, nil)
	})
	t.Run("kafka", func(t *testing.T) {
		broker := kafkabrokertest.Start(t, kafkabroker.Options{})
		bus, err := replica.Kafka(replica.KafkaOptions{Brokers: []string{broker.Addr()}, Topic: "informers"})
		informersOnTheBus(t, bus, err, broker, "", onKafka(topic{t, broker.Addr(), "informers"}, nil))
	})
}

func informersOnTheBus(t *testing.T, bus *replica.Bus, err error, server restartable, url string, set map[string]string) {
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	typed, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := quietNamespace(t, u)
	informers := map[string]*informer{
		"typed":    runInformer(t, bus, namespace, &corev1.ConfigMap{}, false),
		"dynamic":  runInformer(t, bus, namespace, &unstructured.Unstructured{}, true),
		"metadata": runInformer(t, bus, namespace, &metav1.PartialObjectMetadata{}, false),
	}
	equal := func(when string, lists int32) {
		t.Helper()
		for name, i := range informers {
			poll.Try(t, fmt.Sprintf("the %s informer equals the API server %s", name, when), func(ctx context.Context) error {
				of, err := u.of(configMaps, namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				all, err := typed.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				return i.equals(of, all)
			})
			if got := i.lists.n.Load(); lists > 0 && got != lists {
				t.Errorf("the %s informer listed %d times %s, want %d", name, got, when, lists)
			}
		}
	}
	change := func(round string) {
		t.Helper()
		for _, name := range []string{"updated", "deleted", "recreated"} {
			u.create(configMaps, namespace, configMap(name+round, "1"))
		}
		u.label(configMaps, namespace, "updated"+round, "yes")
		u.delete(configMaps, namespace, "deleted"+round)
		u.delete(configMaps, namespace, "recreated"+round)
		u.create(configMaps, namespace, configMap("recreated"+round, "2"))
	}

	for _, name := range []string{"kept", "lost", "away"} {
		u.create(configMaps, namespace, configMap(name, "1"))
	}
	for name, i := range informers { // without a bus, no informer syncs
		if i.HasSynced() {
			t.Errorf("the %s informer has synced before the forwarder", name)
		}
	}
	settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}
	maps.Copy(settings, set)
	f := newForwarder(t, cp.Kubeconfig(), url, settings)
	f.start().idle()
	equal("after the first snapshot", 0)
	for _, i := range informers {
		i.lists.n.Store(1) // ignores the earlier lists, which failed
	}
	change("1")
	equal("after changes", 1)

	f.kill()
	change("2")
	u.delete(configMaps, namespace, "away")
	f.start().idle()
	equal("after a restart of the forwarder", 1)

	server.Kill()
	change("3")
	server.Start()
	f.idle()
	equal("after a restart of the bus", 1)

	f.kill()
	server.Kill()
	server.Forget()
	u.delete(configMaps, namespace, "lost") // no event tells the informers
	server.Start()
	f.start().idle()
	equal("after the bus lost everything", 0)
	change("4")
	equal("after changes to the new stream", 0)
	f.stop()
}
