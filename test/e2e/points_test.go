package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/replica"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestConsistencyPoints_Slow rebuilds the objects from the bus at every consistency point and compares
// them with a list from the API server at the same version. Objects change meanwhile, and the
// forwarder is killed.
func TestConsistencyPoints_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"})
		f.start()
		for round := range 3 {
			if round > 0 {
				f.kill()
				bus.change(u, namespace, round, 20) // while no forwarder runs
				f.start()
			}
			ctx, cancel := context.WithCancel(t.Context())
			var working sync.WaitGroup
			working.Go(func() {
				for ctx.Err() == nil {
					bus.change(u, namespace, round, 50)
				}
			})
			stop := sync.OnceFunc(func() { cancel(); working.Wait() })
			t.Cleanup(stop)
			before := len(bus.points())
			poll.Try(t, "there are consistency points while objects change", func(context.Context) error {
				if n := len(bus.points()) - before; n < 5 {
					return fmt.Errorf("%d points", n)
				}
				return nil
			})
			stop()
		}
		last := u.create(configMaps, namespace, configMap("last", "1"))
		poll.Try(t, "a consistency point has the last change", func(context.Context) error {
			all := bus.points()
			if at := all[len(all)-1].Attributes["resourceversion"]; number(at) < number(last.GetResourceVersion()) {
				return fmt.Errorf("the last point is at %s, the last change at %s", at, last.GetResourceVersion())
			}
			return nil
		})
		bus.checkPoints(u, namespace)
	})
}

// change makes n changes: each one deletes an object, or creates it if it doesn't exist.
func (b *anyBus) change(u *user, namespace string, round, n int) {
	for i := range n {
		name := fmt.Sprintf("c%d", i%17)
		err := u.of(configMaps, namespace).Delete(b.t.Context(), name, metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			u.create(configMaps, namespace, configMap(name, fmt.Sprint(round, i)))
		case err != nil:
			b.t.Error(err)
		case i%3 > 0:
			u.create(configMaps, namespace, configMap(name, fmt.Sprint(round, i)))
			u.label(configMaps, namespace, name, fmt.Sprint(i))
		}
	}
}

// points returns the consistency points in all partitions.
func (b *anyBus) points() []harness.Received {
	b.t.Helper()
	var points []harness.Received
	for _, m := range b.all() {
		if m.Kind() == "resolved" {
			points = append(points, m)
		}
	}
	return points
}

// seen is a state of an object, from the last event in a partition, from the API server, or from a
// store.
type seen struct {
	version uint64
	gone    bool
	object  map[string]any
}

func (s seen) equals(o seen) bool {
	return s.version == o.version && reflect.DeepEqual(s.object, o.object)
}

func (b *anyBus) checkPoints(u *user, namespace string) {
	b.t.Helper()
	all := b.all()
	partitionOf := map[string]int{}
	for _, m := range all {
		if name := m.Attributes["name"]; name != "" && m.Body != nil {
			partitionOf[name] = m.Partition
		}
	}
	states, lists, checked := map[int]map[string]seen{}, map[string]map[string]seen{}, 0
	reached := map[int]uint64{} // the version of each partition's last point
	for _, m := range all {
		if states[m.Partition] == nil {
			states[m.Partition] = map[string]seen{}
		}
		state := states[m.Partition]
		switch kind := m.Kind(); {
		case kind == "resolved":
			at := m.Attributes["resourceversion"]
			if lists[at] == nil {
				lists[at] = b.listAt(u, namespace, at)
			}
			if n, err := strconv.Atoi(m.Attributes["objects"]); err != nil || n != len(lists[at]) {
				b.t.Errorf("the point at %s has %s objects, the API server has %d", at, m.Attributes["objects"], len(lists[at]))
			}
			if err := compare(state, lists[at], number(at), func(name string) bool { return partitionOf[name] == m.Partition }); err != nil {
				b.t.Errorf("%s, at %s: %v", m.Place, at, err)
			}
			reached[m.Partition] = number(at)
			checked++
		case m.Body != nil && m.Attributes["name"] != "":
			is := seen{version: number(m.Attributes["resourceversion"]), gone: kind == "deleted"}
			if err := json.Unmarshal(m.Data, &is.object); err != nil {
				b.t.Fatalf("%s: %v", m.Place, err)
			}
			if !is.gone && is.version <= reached[m.Partition] {
				b.t.Errorf("%s: %s of %s at %d comes after the point at %d", m.Place, kind, m.Attributes["name"], is.version, reached[m.Partition])
			}
			state[m.Attributes["name"]] = is
		}
	}
	present := map[string]seen{} // no object changes after the last point
	for _, state := range states {
		for name, is := range state {
			if !is.gone {
				present[name] = is
			}
		}
	}
	points := b.points()
	at := points[len(points)-1].Attributes["resourceversion"]
	if want := b.listAt(u, namespace, at); !maps.EqualFunc(present, want, seen.equals) {
		b.t.Errorf("the bus has %v at the last point, the API server %v", present, want)
	}
	if checked < 15 {
		b.t.Errorf("checked %d points, want at least 15", checked)
	}
}

// compare compares a state with a list at a version. Only objects that changed after the version
// may differ. An object in the list can be missing from the state if the object was deleted later
// and the event before the delete was skipped. The callers verify the later event.
func compare(state, list map[string]seen, version uint64, here func(string) bool) error {
	var wrong []error
	for name, want := range list {
		if is, ok := state[name]; ok && !is.gone && here(name) && is.version <= version && !is.equals(want) {
			wrong = append(wrong, fmt.Errorf("%s is %+v, the API server has %+v", name, is, want))
		}
	}
	for name, is := range state {
		if _, ok := list[name]; !ok && !is.gone && is.version <= version {
			wrong = append(wrong, fmt.Errorf("%s is at %d, the API server does not have it", name, is.version))
		}
	}
	return errors.Join(wrong...)
}

// listAt returns the objects of a namespace at a version, by name.
func (b *anyBus) listAt(u *user, namespace, version string) map[string]seen {
	b.t.Helper()
	list, err := u.of(configMaps, namespace).List(b.t.Context(), metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		b.t.Fatal(err)
	}
	objects := map[string]seen{}
	for i := range list.Items {
		o := &list.Items[i]
		objects[o.GetName()] = seen{version: number(o.GetResourceVersion()), object: asPublished(o)}
	}
	return objects
}

// TestStoreAtPoints_Slow compares the store of an informer on the bus with the API server at the version
// of the store's consistency point. It compares repeatedly while objects change.
func TestStoreAtPoints_Slow(t *testing.T) {
	cp := cluster.ControlPlane(t)
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		f := bus.forwarder(cp.Kubeconfig(), map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"})
		f.start()
		store := runInformer(t, bus.replica(), namespace, &unstructured.Unstructured{}, false).GetStore()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var working sync.WaitGroup
		defer working.Wait()
		working.Go(func() { bus.change(u, namespace, 0, 150) })
		next := ""
		for range 10 {
			p, err := replica.WaitForResourceVersion(ctx, store, next)
			if err != nil {
				t.Fatal(err)
			}
			state := map[string]seen{}
			for _, o := range store.List() {
				o := o.(*unstructured.Unstructured)
				state[o.GetName()] = seen{version: number(o.GetResourceVersion()), object: asPublished(o)}
			}
			list := bus.listAt(u, namespace, p.ResourceVersion)
			if err := compare(state, list, number(p.ResourceVersion), func(string) bool { return true }); err != nil {
				t.Errorf("at %s: %v", p.ResourceVersion, err)
			}
			for name, was := range list {
				if _, ok := state[name]; ok {
					continue
				}
				now, err := u.of(configMaps, namespace).Get(ctx, name, metav1.GetOptions{})
				if err == nil && number(now.GetResourceVersion()) <= was.version {
					t.Errorf("the store lacks %s at %s", name, p.ResourceVersion)
				}
			}
			next = u.create(configMaps, namespace, configMap("next-"+p.ResourceVersion, "1")).GetResourceVersion()
		}
		working.Wait()
		f.stop()
	})
}
