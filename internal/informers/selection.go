package informers

import (
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// len returns the number of selected objects.
func (s *Set) len(w *watched) int {
	n := 0
	for _, i := range w.all() {
		n += s.lenOf(i)
	}
	return n
}

func (s *Set) lenOf(i *informer) int {
	switch {
	case i.followed: // the selection depends on references
	case i.namespace != "" || !i.resource.Namespaced || s.namespaces.SelectsAll():
		return i.count.selected(func(string) bool { return true })
	default:
		return i.count.selected(s.namespaces.Selects)
	}
	n := 0
	for _, name := range i.shared.GetStore().ListKeys() {
		if k := i.key(name); s.selects(k) {
			if o := i.get(k); o != nil && !o.Unselected {
				n++
			}
		}
	}
	return n
}

// namespaceChanged makes every resource find out again which namespaces it covers, and
// enqueues every object of the namespace.
func (s *Set) namespaceChanged(namespace string) {
	if !s.namespaces.Listed() {
		return // nothing has started yet
	}
	s.log.Debug("namespace selection changed", "namespace", namespace, "selected", s.namespaces.Selects(namespace))
	s.eachWatched(func(w *watched) {
		if !w.resource.Namespaced {
			return
		}
		w.lookAgain()
		s.reselect(w)
		for _, k := range w.keysIn(namespace) {
			s.references.Update(k)
			s.EnqueueLowPriority(k)
		}
	})
}

// Interest says whether an object of a key belongs on the bus. It does not block.
func (s *Set) Interest(k event.Key) ledger.Interest {
	of := ledger.Interest{Selected: s.selects(k), Published: true}
	if w := s.watchedFor(k.GroupResource()); s.config.Shape != nil && w != nil {
		if i := w.informer(k); i != nil {
			o := i.get(k)
			of.Published = o == nil || !o.Unselected
		}
	}
	return of
}

// selects reports whether an object belongs on the bus, if it exists and its content is
// selected too.
func (s *Set) selects(k event.Key) bool {
	selected := s.namespaces.Selects(k.Namespace)
	if !selected || !s.references.Enabled() {
		return selected
	}
	w := s.watchedFor(k.GroupResource())
	if w == nil || !w.followed {
		return true
	}
	return s.references.Selects(w.resource, k)
}

// publishesDeselected reports whether a deselected event is published for an object on the
// bus that is not selected. It always is for an object that leaves because the labels of its
// namespace change, or because nothing refers to it any more. For an object that another
// configuration selected, it depends on [Config.PublishDeselected].
func (s *Set) publishesDeselected(k event.Key) bool {
	if !s.namespaces.MaySelect(k.Namespace) {
		return s.config.PublishDeselected
	}
	if w := s.watchedFor(k.GroupResource()); w != nil && w.followed && s.namespaces.Selects(k.Namespace) {
		return s.references.IsComplete()
	}
	return true
}

// deselect turns the live object of a view, which is not selected, into a tombstone.
func (s *Set) deselect(k event.Key, v *event.View) {
	o := v.Live
	v.Live = nil
	if _, gone := v.Tombstone(string(o.UID)); gone || !s.namespaces.Exists(k.Namespace) || !s.publishesDeselected(k) {
		return // if the namespace is gone, the watch of the resource shows the deletes
	}
	v.Tombstones = append(v.Tombstones, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(o)})
}

// unselect does so for an object that is not selected by its content. The tombstone is made
// here if there is none yet: the bus may have the object from an earlier run.
func (s *Set) unselect(v *event.View) {
	uid := string(v.Live.UID)
	v.Live = nil
	if _, gone := v.Tombstone(uid); !gone {
		v.Tombstones = append(v.Tombstones, event.Tombstone{UID: uid, Deselected: true, Observed: s.config.Now(), Cause: v.Cause})
	}
}

// kept returns the last state for a tombstone: nil for an object whose body was not kept,
// since it is not published. The bus has the last state then, if there is one.
func kept(o *event.Object) *event.Object {
	if o.Body.None() {
		return nil
	}
	return o
}

// objectCount counts the objects of an informer by namespace, so that metrics and readiness
// need not list them. The zero value is ready to use.
type objectCount struct {
	mu sync.Mutex
	of map[string]tally
}

type tally struct {
	all      int
	selected int // by their content
}

// change counts an object before and after a change; nil is none.
func (c *objectCount) change(before, after *event.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(before, -1)
	c.add(after, 1)
}

func (c *objectCount) add(o *event.Object, n int) {
	if o == nil {
		return
	}
	if c.of == nil {
		c.of = map[string]tally{}
	}
	at := c.of[o.Namespace]
	if at.all += n; !o.Unselected {
		at.selected += n
	}
	if c.of[o.Namespace] = at; at == (tally{}) {
		delete(c.of, o.Namespace)
	}
}

// in returns the number of objects of a namespace.
func (c *objectCount) in(namespace string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[namespace].all
}

// none reports whether there is no object, selected or not.
func (c *objectCount) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.of {
		if at.all > 0 {
			return false
		}
	}
	return true
}

// selected returns the number of objects that are selected by their content, in the
// namespaces that match.
func (c *objectCount) selected(namespace func(string) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for name, at := range c.of {
		if namespace(name) {
			n += at.selected
		}
	}
	return n
}
