package replica

import (
	"fmt"
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

// table has the objects that the reader sees, and decides which watch event a change is. It
// does no I/O.
type table struct {
	decoder *decoder
	labels  labels.Selector
	cluster string // of the objects; "" if no cluster is selected, before the first object; see claim
	entries map[event.Key]entry
	packer  *event.Packer
}

// entry is an object that matches the label selector.
type entry struct {
	uid    types.UID
	object runtime.Object // until the present state is complete; then nil
	last   event.Body     // the last state, if there is a label selector

	truncated bool // as in change, of the last state
}

func newTable(d *decoder, selector labels.Selector) *table {
	return &table{decoder: d, labels: selector, entries: map[event.Key]entry{}, packer: event.NewPacker()}
}

// change is the last event of an object.
type change struct {
	key       event.Key
	removed   bool
	version   string // resourceVersion; "" if unknown
	data      []byte // the object as JSON; nil if unknown
	identity  bool   // data is only the identity of the object
	truncated bool   // data is only apiVersion, kind and metadata
}

// claim reports whether a change is of the cluster of the table. Without a selected cluster, the
// table is of the first cluster that has an object. It changes to another one if that has a
// selected object and the table has none: the bus can still have the deletes of a cluster that was
// removed.
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

// add adds a change to the present state.
func (t *table) add(c change) error {
	object, matches, err := t.read(c)
	if err == nil {
		delete(t.entries, c.key)
	}
	if err == nil && matches {
		t.keep(c, entry{uid: metaOf(object).GetUID(), object: object})
	}
	return err
}

// objects returns the present state, in the order of names. It can be called once.
func (t *table) objects() []runtime.Object {
	keys := make([]event.Key, 0, len(t.entries))
	for k := range t.entries {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b event.Key) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	objects := make([]runtime.Object, len(keys))
	for i, k := range keys {
		e := t.entries[k]
		objects[i], e.object = e.object, nil
		t.entries[k] = e
	}
	return objects
}

// apply returns the watch events of a change that follows the present state: none, one, or two
// if the change has the successor of an object whose delete is no longer on the bus.
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

// read decodes an object that exists, and reports whether it matches the selector.
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

// keep stores that the object of a change is in the table.
func (t *table) keep(c change, e entry) {
	if !t.labels.Empty() {
		e.last, e.truncated = t.packer.Pack(c.data), c.truncated
	}
	t.entries[c.key] = e
}

// final returns the object of a DELETED event: the state in the event, or the last one that
// matched, with the resourceVersion of the event, as the API server has it. A state in the event
// that can't be decoded, such as one in another version, counts as unknown.
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

// metaOf returns the metadata of an object of the decoder.
func metaOf(object runtime.Object) metav1.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err) // newDecoder checked the type
	}
	return m
}
