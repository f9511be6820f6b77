package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

var (
	tailPods        = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	tailDeployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	tailRoles       = event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
)

// tailPublisher is a bus that a test publishes to.
type tailPublisher interface {
	publish.Publisher
	Wait(context.Context) error
}

// tailBus publishes events like a forwarder.
type tailBus struct {
	t       *testing.T
	bus     tailPublisher
	cluster string
	last    map[event.Key]uint64
	n       int
}

func newTailBus(t *testing.T, url, cluster string, mode nats.ContentMode) *tailBus {
	t.Helper()
	bus, err := nats.Connect(t.Context(), nats.Options{Connection: nats.Connection{URLs: []string{url}, Cluster: cluster, AckTimeout: tailLimit}, ContentMode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return newTailBusOn(t, bus, cluster)
}

func newTailBusOn(t *testing.T, bus tailPublisher, cluster string) *tailBus {
	t.Helper()
	t.Cleanup(func() { bus.Close() })
	b := &tailBus{t: t, bus: bus, cluster: cluster, last: map[event.Key]uint64{}}
	b.wait()
	return b
}

func (b *tailBus) wait() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), tailLimit)
	defer cancel()
	if err := b.bus.Wait(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// put publishes a state of an object. The version increases by one with each published state.
func (b *tailBus) put(typ event.Type, r event.Resource, namespace, name string) {
	b.t.Helper()
	b.putBody(typ, r, namespace, name, time.Now(), func(version string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"resourceVersion":%q},"spec":{"text":"é <>"}}`, r.Kind, version)
	})
}

func (b *tailBus) putBody(typ event.Type, r event.Resource, namespace, name string, observed time.Time, body func(version string) string) {
	b.t.Helper()
	b.n++
	version := fmt.Sprint(b.n)
	k := r.Key(namespace, name)
	m, err := event.Builder{Cluster: b.cluster}.Message(event.Change{
		Type: typ, Cause: event.CauseWatch, Key: k, Resource: r, Observed: observed,
		Object: &event.Object{
			APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: namespace, Name: name, UID: types.UID("uid-of-" + b.cluster + name), ResourceVersion: version,
			Body: event.JSON([]byte(body(version))),
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	m.Expected = b.last[k]
	b.last[k] = b.publish(m)
}

func (b *tailBus) mark(typ event.Type, r event.Resource, objects int) {
	b.t.Helper()
	m, err := event.Builder{Cluster: b.cluster}.Marker(typ, r, "s1", objects, time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	b.publish(m)
}

// publish publishes a message, and retries after an error. The bus may detect only during the publish
// that its server was down.
func (b *tailBus) publish(m *event.Message) uint64 {
	b.t.Helper()
	type outcome struct {
		position uint64
		err      error
	}
	done := make(chan outcome, 1)
	for timeout := time.After(tailLimit); ; {
		b.bus.Publish(b.t.Context(), m, func(position uint64, err error) { done <- outcome{position, err} })
		select {
		case o := <-done:
			if o.err == nil {
				return o.position
			}
			if !errors.Is(o.err, publish.ErrNotSent) {
				b.t.Fatal(o.err)
			}
			b.wait()
		case <-timeout:
			b.t.Fatal("not acknowledged")
		}
	}
}

// some publishes seven events.
func (b *tailBus) some() {
	b.t.Helper()
	b.mark(event.SnapshotStarted, tailPods, 0)
	b.put(event.Snapshot, tailPods, "default", "web-1")
	b.mark(event.SnapshotCompleted, tailPods, 1)
	b.put(event.Created, tailDeployments, "shop", "cart")
	b.put(event.Updated, tailPods, "default", "web-1")
	b.put(event.Created, tailRoles, "", "\x1b[2J")
	b.put(event.Deleted, tailPods, "default", "web-1")
}
