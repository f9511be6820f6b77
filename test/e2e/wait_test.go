package e2e

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listerscorev1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/replica"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

// TestReadYourWrites creates, changes and deletes objects in the API server, ten at a time. After
// each write, it waits until an informer on the bus has reached the version that the API server
// returned. From then on, the lister must return the written object.
func TestReadYourWrites(t *testing.T) {
	const objects, atATime = 100, 10
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		namespace := controlplanetest.Namespace(t, cp)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"})
		f.start()
		client, err := kubernetes.NewForConfig(cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		informer := runInformer(t, bus.replica(), namespace, &corev1.ConfigMap{}, false)
		w := &writes{
			client: client.CoreV1().ConfigMaps(namespace), store: informer.GetStore(),
			lister: listerscorev1.NewConfigMapLister(informer.GetIndexer()).ConfigMaps(namespace),
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atATime)
		for i := range objects {
			group.Go(func() error { return w.check(ctx, fmt.Sprintf("w%d", i)) })
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		f.stop()
	})
}

// replica opens the bus for the informers of package replica.
func (b *anyBus) replica() *replica.Bus {
	b.t.Helper()
	bus, err := replica.NATS(b.t.Context(), replica.NATSOptions{URLs: []string{b.url}})
	if b.url == "" {
		bus, err = replica.Kafka(replica.KafkaOptions{Brokers: []string{b.set["KAFKA_BROKERS"]}, Topic: b.set["KAFKA_TOPIC"]})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = bus.Close() })
	return bus
}

// writes sends writes to the API server and reads each of them back from the bus.
type writes struct {
	client typedcorev1.ConfigMapInterface
	store  cache.Store
	lister listerscorev1.ConfigMapNamespaceLister
}

// check writes an object three times.
func (w *writes) check(ctx context.Context, name string) error {
	written, err := w.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		err = w.has(ctx, written)
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	written.Data = map[string]string{"changed": "yes"}
	if written, err = w.client.Update(ctx, written, metav1.UpdateOptions{}); err == nil {
		err = w.has(ctx, written)
	}
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	version, err := w.delete(ctx, written)
	if err == nil {
		_, err = replica.WaitForResourceVersion(ctx, w.store, version)
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if got, err := w.lister.Get(name); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the lister has %v, %w, after the delete at %s", got, err, version)
	}
	return nil
}

// has waits for the version of an object and reads the object. No other client may change the
// object.
func (w *writes) has(ctx context.Context, written *corev1.ConfigMap) error {
	if _, err := replica.WaitForResourceVersion(ctx, w.store, written.ResourceVersion); err != nil {
		return err
	}
	got, err := w.lister.Get(written.Name)
	if err != nil || got.ResourceVersion != written.ResourceVersion {
		return fmt.Errorf("the lister has %v, %w, want %s at %s", got, err, written.Name, written.ResourceVersion)
	}
	return nil
}

// delete deletes the object and returns the version of the delete, which only a watch reports.
func (w *writes) delete(ctx context.Context, o *corev1.ConfigMap) (version string, err error) {
	events, err := w.client.Watch(ctx, metav1.ListOptions{
		ResourceVersion: o.ResourceVersion, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Name).String(),
	})
	if err != nil {
		return "", err
	}
	defer events.Stop()
	if err := w.client.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	for e := range events.ResultChan() {
		if deleted, ok := e.Object.(*corev1.ConfigMap); ok && e.Type == watch.Deleted {
			return deleted.ResourceVersion, nil
		}
	}
	return "", fmt.Errorf("the watch of %s ended", o.Name)
}
