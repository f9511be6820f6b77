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

// unlisted is an informer whose store counts how often all keys are listed.
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

// TestNobodyListsEveryKey: readiness and metrics are asked for every few seconds, and a
// namespace that is created has no objects. Where only some namespaces are selected each of
// them listed every key of the cluster.
func TestNobodyListsEveryKey(t *testing.T) {
	b := newBench(t, Config{Namespaces: discovery.NamespaceSelection{Exclude: []string{"hidden"}, Selector: labels.SelectorFromSet(labels.Set{"sync": "yes"})}}, testResource)
	b.namespaces.Put("default", map[string]string{"sync": "yes"})
	b.namespaces.Put("other", nil)
	b.namespaces.Synced()
	i := b.watched.informers[""]
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
	b.onDelete(i, cache.DeletedFinalStateUnknown{Key: "default/web-2"}) // client-go does not know what it was
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
		t.Errorf("%d objects of a namespace that is selected now are looked at, want 5", got)
	}
}
