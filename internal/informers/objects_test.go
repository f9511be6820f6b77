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
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// objects creates and changes the objects of one resource in one namespace, as an administrator.
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

// create creates an object. It retries until it succeeds, because the resource may be new.
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
	poll.Try(o.t, "create "+name, func(context.Context) (err error) {
		created, err = o.client.Create(o.t.Context(), u, metav1.CreateOptions{})
		return err
	})
	return created
}

// touch updates an object, so that it gets a new version.
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

// ackedOf returns the entry for an acknowledged event with this state.
func ackedOf(u *unstructured.Unstructured) event.Acked {
	return event.Acked{UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
}

// gate is a network connection between one client and the API server that a test can cut. Other
// clients can still reach the API server.
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
			// The error is that of a dead API server. After it, client-go continues its watch as soon as
			// possible. After any other error, client-go lists again.
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

func bodyOf(t *testing.T, o *event.Object) string {
	t.Helper()
	text, err := o.Body.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
