package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kuberelay/kuberelay/internal/event"
)

// table holds the objects that the reader sees, and converts changes to watch events. It does no I/O.
type table struct {
	decoder *decoder
	labels  labels.Selector
	cluster string // cluster of the objects; "" if none is selected and no object was added; see claim
	entries map[event.Key]entry
	packer  *event.Packer
}

// entry is an object that matches the label selector.
type entry struct {
	uid    types.UID
	object runtime.Object // nil once objects has returned the current state
	last   event.Body     // the last state, if there is a label selector

	truncated bool // the last state is truncated, as in change
}

func newTable(d *decoder, selector labels.Selector) *table {
	return &table{decoder: d, labels: selector, entries: map[event.Key]entry{}, packer: event.NewPacker()}
}

// change is the content of an event of an object.
type change struct {
	key       event.Key
	removed   bool
	version   string // resourceVersion; "" if unknown
	data      []byte // the object as JSON; nil if unknown
	identity  bool   // data is only the identity of the object
	truncated bool   // data is only apiVersion, kind, and metadata
}

// claim reports whether a change belongs to the cluster of the table. If no cluster is selected,
// the table takes the cluster of the first object. If the table has no objects and another cluster
// has a selected object, the table switches to that cluster, because the first cluster may be gone.
// Selected objects of two clusters are an error.
func (t *table) claim(cluster string, c change) (ours bool, err error) {
	switch {
	case cluster == t.cluster:
		return true, nil
	case c.removed:
		return false, nil
	case t.cluster != "":
		_, matches, err := t.read(c)
		if err != nil || !matches {
			return false, err
		}
		if len(t.entries) > 0 {
			return false, fmt.Errorf("the bus has objects of the clusters %q and %q: set Options.Cluster", t.cluster, cluster)
		}
	}
	t.cluster = cluster
	return true, nil
}

// add applies a change while the feed reads the current state.
func (t *table) add(c change) error {
	object, matches, err := t.read(c)
	if err != nil {
		return err
	}
	delete(t.entries, c.key)
	if matches {
		t.keep(c, entry{uid: metaOf(object).GetUID(), object: object})
	}
	return nil
}

// objects returns the current state, sorted by namespace and name. Call it once.
func (t *table) objects() []runtime.Object {
	keys := slices.SortedFunc(maps.Keys(t.entries), func(a, b event.Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	objects := make([]runtime.Object, len(keys))
	for i, k := range keys {
		e := t.entries[k]
		objects[i], e.object = e.object, nil
		t.entries[k] = e
	}
	return objects
}

// apply returns the watch events for a change that follows the current state. It returns two events
// if the change shows a recreated object and the delete of its predecessor is no longer on the bus,
// and otherwise one or none.
func (t *table) apply(c change) ([]watch.Event, error) {
	e, known := t.entries[c.key]
	object, matches, err := t.read(c)
	if err != nil {
		return nil, err
	}
	var events []watch.Event
	if matches && known && metaOf(object).GetUID() != e.uid {
		if events, err = t.remove(change{key: c.key, removed: true}, e); err != nil {
			return nil, err
		}
		known = false
	}
	switch {
	case matches && known:
		events = append(events, watch.Event{Type: watch.Modified, Object: object})
	case matches:
		events = append(events, watch.Event{Type: watch.Added, Object: object})
	case known:
		return t.remove(c, e)
	default:
		return nil, nil
	}
	t.keep(c, entry{uid: metaOf(object).GetUID()})
	return events, nil
}

func (t *table) remove(c change, e entry) ([]watch.Event, error) {
	object, err := t.final(c, e)
	if err != nil {
		return nil, err
	}
	delete(t.entries, c.key)
	return []watch.Event{{Type: watch.Deleted, Object: object}}, nil
}

// read decodes the object of a change that is not a removal, and reports whether the object matches the
// selector.
func (t *table) read(c change) (object runtime.Object, matches bool, err error) {
	if c.removed {
		return nil, false, nil
	}
	object, m, err := t.decoder.decode(c)
	if err != nil {
		return nil, false, err
	}
	return object, t.labels.Matches(labels.Set(m.GetLabels())), nil
}

// keep stores the entry of a changed object. With a label selector, it also stores the state.
func (t *table) keep(c change, e entry) {
	if !t.labels.Empty() {
		e.last, e.truncated = t.packer.Pack(c.data), c.truncated
	}
	t.entries[c.key] = e
}

// final returns the object of a DELETED event. It is the state in the event if that state matches
// the selector. Otherwise, it is the last state that matched, with the resourceVersion of the
// event, as in a watch on the API server. A state in the event that can't be decoded, for example
// because it has another API version, counts as unknown.
func (t *table) final(c change, e entry) (runtime.Object, error) {
	if c.data != nil && c.removed && (!c.identity || e.last.None()) {
		object, m, err := t.decoder.decode(c)
		if err == nil && (t.labels.Matches(labels.Set(m.GetLabels())) || e.last.None()) {
			return object, nil
		}
	}
	if e.last.None() {
		return t.decoder.named(c.key, e.uid), nil
	}
	data, err := e.last.JSON()
	if err != nil {
		return nil, fmt.Errorf("read the last state: %w", err)
	}
	c.data, c.truncated = data, e.truncated
	object, m, err := t.decoder.decode(c)
	if err == nil && c.version != "" {
		m.SetResourceVersion(c.version)
	}
	return object, err
}

// metaOf returns the metadata of an object that the decoder returned.
func metaOf(object runtime.Object) metav1.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err) // newDecoder checked the type
	}
	return m
}
