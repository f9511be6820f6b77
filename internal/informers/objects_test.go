package informers

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

// objects is an administrator's hold on the objects of one resource and namespace.
type objects struct {
	t         *testing.T
	client    dynamic.ResourceInterface
	gvr       schema.GroupVersionResource
	kind      string
	namespace string
}

func newObjects(t *testing.T, cp *controlplane.ControlPlane, gvr schema.GroupVersionResource, kind, namespace string) objects {
	t.Helper()
	client, _ := clients(t, cp.Config())
	o := objects{t: t, client: client.Resource(gvr), gvr: gvr, kind: kind, namespace: namespace}
	if namespace != "" {
		o.client = client.Resource(gvr).Namespace(namespace)
	}
	return o
}

func (o objects) key(name string) event.Key {
	return event.Key{Group: o.gvr.Group, Resource: o.gvr.Resource, Namespace: o.namespace, Name: name}
}

// create tries until it succeeds: a resource may have been defined just now.
func (o objects) create(name string, labels map[string]string) *unstructured.Unstructured {
	o.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if o.gvr == priorityClasses {
		u.Object["value"] = int64(1)
	}
	u.SetGroupVersionKind(o.gvr.GroupVersion().WithKind(o.kind))
	u.SetName(name)
	u.SetLabels(labels)
	var created *unstructured.Unstructured
	poll(o.t, "create "+name, func() (err error) {
		created, err = o.client.Create(o.t.Context(), u, metav1.CreateOptions{})
		return err
	})
	return created
}

// touch makes a new version of an object.
func (o objects) touch(u *unstructured.Unstructured, labels map[string]string) *unstructured.Unstructured {
	o.t.Helper()
	u = u.DeepCopy()
	u.SetLabels(labels)
	u.SetAnnotations(map[string]string{"touched": u.GetResourceVersion()})
	updated, err := o.client.Update(o.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	return updated
}

func (o objects) delete(name string) {
	o.t.Helper()
	if err := o.client.Delete(o.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// ackedOf is what the bus has once it has acknowledged this state.
func ackedOf(u *unstructured.Unstructured) event.Acked {
	return event.Acked{UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
}

// gate is a network between a client and the API server that can be cut. Others
// reach it still.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

// through returns a configuration whose connections go through the gate.
func (g *gate) through(config *rest.Config) *rest.Config {
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut {
			// As from a dead API server: client-go then goes on with its watch when
			// it can, and lists again after any other error.
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.conns == nil {
			g.conns = map[net.Conn]struct{}{}
		}
		g.conns[conn] = struct{}{}
		if g.shut {
			_ = conn.Close()
		}
		return conn, nil
	}
	return config
}

// set shuts or opens the gate.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	if shut {
		for conn := range g.conns {
			_ = conn.Close()
		}
		g.conns = nil
	}
}
