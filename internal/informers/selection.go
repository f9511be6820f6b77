package informers

import (
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
	if !i.of.followed {
		all := i.namespace != "" || !i.of.resource.Namespaced || s.namespaces.SelectsAll()
		return i.count.Selected(func(namespace string) bool { return all || s.namespaces.Selects(namespace) })
	}
	n := 0 // the selection depends on references, so count the objects one by one
	for _, o := range i.shared.GetStore().List() {
		if o := o.(*event.Object); !o.Unselected && s.selects(i.of.resource.Key(o.Namespace, o.Name)) {
			n++
		}
	}
	return n
}

// namespaceChanged makes every namespaced resource align its informers. It enqueues every object of
// the namespace.
func (s *Set) namespaceChanged(namespace string) {
	if !s.namespaces.Listed() {
		return // nothing has started yet
	}
	s.log.Debug("namespace selection changed", "namespace", namespace, "selected", s.namespaces.Selects(namespace))
	s.eachWatched(func(w *watched) {
		if !w.resource.Namespaced {
			return
		}
		w.requestAlign()
		for _, k := range w.keysIn(namespace) {
			s.references.Update(k)
			s.EnqueueLowPriority(k)
		}
		if !s.namespaces.Selects(namespace) && w.informer(w.resource.Key(namespace, "")) == nil {
			// The namespace lost its label before its informer started, or while access was denied. A
			// comparison might have waited for that informer, so request another one.
			s.config.Compare(w.groupResource())
		}
	})
}

// Interest reports whether an object of a key belongs on the bus. It does not block.
func (s *Set) Interest(k event.Key) ledger.Interest {
	of := ledger.Interest{Reports: s.ledger.Reports(), Published: true} // the number of reports before the rest
	of.Selected = s.selects(k)
	if w := s.watchedFor(k.GroupResource()); s.config.Shape != nil && w != nil {
		o := w.get(k)
		of.Published = o == nil || !o.Unselected
	}
	return of
}

// Shown returns the UID of the object that the informers show, or "" if they show none that is selected.
// It does not block.
func (s *Set) Shown(k event.Key) string {
	if w := s.watchedFor(k.GroupResource()); w != nil {
		if o := w.get(k); s.selectsObject(k, o) {
			return string(o.UID)
		}
	}
	return ""
}

// selectsObject reports whether o is an object that belongs on the bus. o may be nil.
func (s *Set) selectsObject(k event.Key, o *event.Object) bool {
	return o != nil && !o.Unselected && s.selects(k)
}

// selects reports whether namespaces and references select an object. It does not apply the filter.
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

// publishesDeselected reports whether an object on the bus that is not selected gets a deselected
// event. This is the case if the labels of its namespace changed, or if all references are known and
// none refers to the object. If only another configuration selected the object,
// [Config.PublishDeselected] decides.
func (s *Set) publishesDeselected(k event.Key) bool {
	if !s.namespaces.MaySelect(k.Namespace) {
		return s.config.PublishDeselected
	}
	if w := s.watchedFor(k.GroupResource()); w != nil && w.followed && s.namespaces.Selects(k.Namespace) {
		return s.references.IsComplete()
	}
	return true
}

// deselect replaces the live object of a view with a tombstone, because the object is not selected.
func (s *Set) deselect(k event.Key, v *event.View) {
	o := v.Live
	v.Live = nil
	if _, gone := v.Tombstone(string(o.UID)); gone || !s.namespaces.Exists(k.Namespace) || !s.publishesDeselected(k) {
		return // if the namespace is gone, the watch of the resource shows the deletes
	}
	v.Tombstones = append(v.Tombstones, event.Tombstone{UID: string(o.UID), Deselected: true, Observed: s.config.Now(), Cause: event.CauseWatch, Object: kept(o)})
}

// deselectByContent removes the live object of a view, because the filter does not select the object.
// It adds a tombstone if none exists: the bus might have the object from an earlier run.
func (s *Set) deselectByContent(v *event.View) {
	uid := string(v.Live.UID)
	v.Live = nil
	if _, gone := v.Tombstone(uid); !gone {
		v.Tombstones = append(v.Tombstones, event.Tombstone{UID: uid, Deselected: true, Observed: s.config.Now(), Cause: v.Cause})
	}
}

// kept returns the last state of an object for a tombstone. It returns nil for an object without a
// body, because such an object was not published in this state. If an earlier state was published,
// only the bus has it.
func kept(o *event.Object) *event.Object {
	if o.Body.None() {
		return nil
	}
	return o
}
