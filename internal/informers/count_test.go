package informers

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/internal/discovery"
	"github.com/kuberelay/kuberelay/internal/event"
)

// unlisted is an informer whose store counts the calls that list all keys or objects.
type unlisted struct {
	cache.SharedIndexInformer
	lists int
}

func (u *unlisted) GetStore() cache.Store { return unlistedStore{u.SharedIndexInformer.GetStore(), u} }

type unlistedStore struct {
	cache.Store
	u *unlisted
}

func (s unlistedStore) ListKeys() []string { s.u.lists++; return s.Store.ListKeys() }
func (s unlistedStore) List() []any        { s.u.lists++; return s.Store.List() }

// TestNobodyListsEveryKey verifies that readiness checks, metrics and a new namespace do not list
// the keys of an informer. They can occur every few seconds. In an earlier version, each of them
// listed every key of the cluster if only some namespaces were selected.
func TestNobodyListsEveryKey(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Exclude: []string{"hidden"}, Selector: labels.SelectorFromSet(labels.Set{"sync": "yes"})}}, testResource)
	b.namespaces.Put("default", map[string]string{"sync": "yes"})
	b.namespaces.Put("other", nil)
	b.namespaces.Synced()
	i := b.watched.informers.All()[""]
	store := &unlisted{SharedIndexInformer: i.shared}
	i.shared = store
	in := func(namespace, name, version string) *event.Object {
		return &event.Object{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: version}
	}
	selected := func(want int) {
		t.Helper()
		scanned := 0
		for _, o := range store.SharedIndexInformer.GetStore().List() {
			if o := o.(*event.Object); !o.Unselected && b.selects(b.watched.resource.Key(o.Namespace, o.Name)) {
				scanned++
			}
		}
		if got := b.Status()[0].Objects; got != want || got != scanned {
			t.Errorf("%d objects are selected, want %d; a scan finds %d", got, want, scanned)
		}
		_ = b.Ready()
		gathered(t, collector{b.Set})
		if store.lists != 0 {
			t.Errorf("all keys are listed %d times", store.lists)
		}
	}
	for n := range 5 {
		b.list(in("default", "web-"+strconv.Itoa(n), "1"))
		b.list(in("other", "web-"+strconv.Itoa(n), "1"))
		b.list(in("hidden", "web-"+strconv.Itoa(n), "1"))
	}
	selected(5)
	gone, without := in("default", "web-0", "1"), in("default", "web-1", "2")
	without.Unselected = true
	b.delete(gone)
	b.update(without)
	selected(3)
	b.onDelete(i, cache.DeletedFinalStateUnknown{Key: "default/web-2"}) // client-go has lost the object
	_ = store.SharedIndexInformer.GetStore().Delete(in("default", "web-2", "1"))
	selected(2)

	if b.namespaces.Put("new", map[string]string{"sync": "yes"}) {
		b.namespaceChanged("new")
	}
	if store.lists != 0 {
		t.Error("all keys are listed when a namespace is created")
	}
	b.takeEnqueued()
	b.namespaces.Put("other", map[string]string{"sync": "yes"})
	b.namespaceChanged("other")
	if got := len(b.takeEnqueued()); got != 5 {
		t.Errorf("%d keys of the newly selected namespace are enqueued, want 5", got)
	}
}
