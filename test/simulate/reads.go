package simulate

import (
	"context"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/checkpoint"
	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/forward"
	"github.com/kuberelay/kuberelay/internal/publish"
)

// busRequest is a request to the bus by a coroutine. It fails if the connection breaks. On NATS, it also fails if
// the process isn't connected, because the client doesn't keep a request for a later connection.
func (p *process) busRequest(f func() error) error {
	connection, isOffline := p.connections, p.world.bus.down && !p.world.isKafka()
	err := p.request(func() error {
		p.world.reads++
		if isOffline || p.world.bus.down || p.connections != connection {
			return errOffline
		}
		return f()
	})
	if err == nil && p.connections != connection {
		return errLost
	}
	return err
}

// client is a forwarder's access to the bus.
type client interface {
	checkpoint.Source
	checkpoint.Purger
	forward.History
	publish(ctx context.Context, m *event.Message, done func(uint64, error)) // part of [forward.Config]
	publishPoint(headers natsgo.Header, data []byte, stored func()) error
}

// nats is a forwarder's access to the JetStream stream.
type nats struct{ p *process }

var _ client = nats{}

// Load implements [checkpoint.Source]. It reads the last event of each object in a step of its own,
// so the bus can change between two reads.
func (n nats) Load(_ context.Context, yield func(event.Key, event.Acked) error) error {
	p, w := n.p, n.p.world
	connection := p.connections
	var at [len(objectNames)]bool
	if err := p.busRequest(func() error {
		for object := range at {
			at[object] = w.bus.lastOf(subjectOf(object)) != nil
		}
		return nil
	}); err != nil {
		return err
	}
	for object, has := range at {
		if !has {
			continue
		}
		if connection != p.connections {
			return errLost
		}
		if err := p.busRequest(func() error {
			last := w.bus.lastOf(subjectOf(object))
			if last == nil {
				return yield(keyOf(object), event.Acked{})
			}
			acked, _ := last.Acked()
			return yield(keyOf(object), acked)
		}); err != nil {
			return err
		}
	}
	return nil
}

// At implements [forward.History].
func (n nats) At(_ context.Context, k event.Key, position uint64) (stored publish.Stored, err error) {
	err = n.p.busRequest(func() error {
		m := n.p.world.bus.at(position)
		switch {
		case m == nil:
		case m.Subject != subjectOf(objectOf(k)):
			return fmt.Errorf("the message has subject %s", m.Subject)
		default:
			stored, _ = m.Stored()
		}
		return nil
	})
	return stored, err
}

// Purge implements [checkpoint.Purger].
func (n nats) Purge(_ context.Context, k event.Key, upTo uint64) error {
	return n.p.busRequest(func() error {
		w, object := n.p.world, objectOf(k)
		w.tell("  the bus purges %s up to %d", k.Name, upTo)
		w.oracle.purged(object, upTo)
		w.bus.purge(subjectOf(object), upTo+1)
		return nil
	})
}

func (n nats) publishPoint(headers natsgo.Header, data []byte, stored func()) error {
	return n.p.busRequest(func() error {
		w := n.p.world
		w.bus.store(subject.Resolved(subjectPrefix, clusterName, resource.GroupResource()), headers, data, w.now)
		stored()
		return nil
	})
}

var errForbidden = apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no Role"))

// reader reads objects from the API server.
type reader struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	p      *process
	spaces bool // it reads namespaces instead of objects
}

// Resource implements [dynamic.Interface].
func (r reader) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	r.spaces = gvr == discovery.NamespaceResource
	return r
}

// Namespace implements [dynamic.NamespaceableResourceInterface].
func (r reader) Namespace(string) dynamic.ResourceInterface { return r }

// Get implements [dynamic.ResourceInterface].
func (r reader) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (o *unstructured.Unstructured, err error) {
	err = r.p.request(func() error {
		r.p.world.reads++
		if !r.p.hasAccess() {
			return errForbidden
		}
		if o = r.p.world.read(name); o == nil {
			return apierrors.NewNotFound(resource.GroupResource(), name)
		}
		return nil
	})
	if err != nil {
		o = nil
	}
	return o, err
}

// List implements [dynamic.ResourceInterface].
func (r reader) List(_ context.Context, options metav1.ListOptions) (list *unstructured.UnstructuredList, err error) {
	err = r.p.request(func() error {
		r.p.world.reads++
		if r.spaces {
			list = r.p.world.listSpaces()
			return nil
		}
		if !r.p.hasAccess() {
			return errForbidden
		}
		list = &unstructured.UnstructuredList{}
		list.SetResourceVersion(versionText(r.p.world.cluster.version))
		for _, name := range objectNames {
			is := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			if options.FieldSelector != "" && options.FieldSelector != is {
				continue
			}
			if o := r.p.world.read(name); o != nil {
				list.Items = append(list.Items, *o)
			}
		}
		return nil
	})
	return list, err
}

// read returns an object from the API server, or nil.
func (w *world) read(name string) *unstructured.Unstructured {
	s := w.cluster.objects[objectOf(resource.Key(namespace, name))]
	if !s.exists() {
		return nil
	}
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": name, "namespace": namespace, "uid": uidOf(s.uid), "resourceVersion": versionText(s.version),
	}}}
	return o
}
