package informers

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Point returns the current consistency point of a resource. ok is false until the informers have
// listed the resource and its first sync is complete. Several goroutines may call it.
func (s *Set) Point(gr schema.GroupResource) (p ledger.Point, ok bool) {
	w := s.watchedFor(gr)
	if w == nil {
		return ledger.Point{}, false
	}
	w.abandoning.Lock() // before w.synced(), so that a later change of the informers discards the point
	selection := w.selected.Load()
	w.abandoning.Unlock()
	p = ledger.Point{Point: event.Point{Resource: w.resource, Taken: s.config.Now()}, Selection: selection}
	if !w.firstSync.IsDone() || !w.synced() {
		return ledger.Point{}, false
	}
	all := w.all()
	slices.SortFunc(all, func(a, b *informer) int { return strings.Compare(a.namespace, b.namespace) })
	for _, i := range all { // in a fixed order, so that concurrent calls do not deadlock
		i.progress.Lock() // stops the handlers of all informers, so that the parts are consistent
	}
	defer func() {
		for _, i := range all {
			i.progress.Unlock()
		}
	}()
	for _, i := range all {
		version, at, ok := i.reached()
		if !ok {
			return ledger.Point{}, false
		}
		if p.Version == "" || revision.IsEarlier(version, p.Version) {
			p.Version = version
		}
		if p.AsOf.IsZero() || at.Before(p.AsOf) {
			p.AsOf = at
		}
		n, ok := s.countAt(i, version, p.Selection)
		if !ok {
			return ledger.Point{}, false
		}
		p.Objects += n
	}
	p.Mark = s.ledger.Mark(gr)
	return p, len(all) > 0
}

// countAt returns the number of selected objects of an informer at a version. It returns false if
// the number is unknown. The caller holds the lock of the progress.
//
// An object that is selected by reference is not in the counts of the handler. So countAt counts
// the objects in the indexer, which can be ahead of the handler. It remembers the result, because
// an unchanged resource gets a point at each tick.
func (s *Set) countAt(i *informer, version string, selection uint64) (objects int, ok bool) {
	if !i.of.followed {
		return s.lenOf(i), true
	}
	if i.version() != version {
		return 0, false
	}
	if i.counted.version != version || i.counted.selection != selection {
		n := s.lenOf(i)
		if i.version() != version {
			return 0, false
		}
		i.counted = counted{version, selection, n}
	}
	return i.counted.objects, true
}

// counted is the number of selected objects at a version, with a selection. See [Set.Selection].
type counted struct {
	version   string
	selection uint64
	objects   int
}

// reached returns the version up to which the handler has reported every change, and the time when
// that version arrived. The caller holds the lock of the progress.
func (i *informer) reached() (version string, at time.Time, ok bool) {
	return i.progress.Reached(i.version(), i.count.None())
}

// Reported returns a version up to which the informers have reported every change of a key to the
// ledger, or "" if unknown.
func (s *Set) Reported(k event.Key) (version string) {
	w := s.watchedFor(k.GroupResource())
	if w == nil {
		return ""
	}
	if i := w.informer(k); i != nil {
		i.progress.Lock()
		defer i.progress.Unlock()
		version, _, _ = i.reached()
	}
	return version
}

// Selection returns a number that changes whenever the selected objects of a resource might have
// changed without a notification. This happens when objects are selected or deselected although
// they did not change. It also happens when an informer starts, because its first list does not
// show objects that were deleted before. The number is 0 for a resource that is not watched.
func (s *Set) Selection(gr schema.GroupResource) uint64 {
	w := s.watchedFor(gr)
	if w == nil {
		return 0
	}
	return w.selected.Load()
}

// reselect gives a resource a new number for [Set.Selection]. Call it before anything that uses
// the new selection.
func (s *Set) reselect(w *watched) { w.selected.Store(s.selections.Add(1)) }

// reselectNamespaced is called before the selection of namespaces changes.
func (s *Set) reselectNamespaced() {
	s.eachWatched(func(w *watched) {
		if w.resource.Namespaced {
			s.reselect(w)
		}
	})
}

// Unreported discards the consistency points of the key's resource that the bus has not reached.
// Call it when the bus has acknowledged an event of an object that the informers have forgotten.
// Such a point might be wrong, because the informers might never report the object's delete.
func (s *Set) Unreported(k event.Key) {
	if w := s.watchedFor(k.GroupResource()); w != nil {
		s.reselect(w)
	}
}

// Marked returns the point with a new mark. The bus reaches the new mark only when it has every
// change that was reported before this call.
func (s *Set) Marked(p ledger.Point) ledger.Point {
	p.Mark = s.ledger.Mark(p.Resource.GroupResource())
	return p
}

// Reached reports whether the bus has every change before a point.
func (s *Set) Reached(p ledger.Point) bool { return s.ledger.Reached(p.Mark) }

// Clean calls f with the keys of a resource's objects, except those with an unacknowledged change,
// until f returns false. The bus has the states of these objects, unless an earlier run left
// changes unpublished.
func (s *Set) Clean(gr schema.GroupResource, f func(event.Key) bool) {
	w := s.watchedFor(gr)
	if w == nil {
		return
	}
	for k := range w.keys() {
		if !s.ledger.IsDirty(k) && !f(k) {
			return
		}
	}
}

// IsClean reports whether a key has no unacknowledged change.
func (s *Set) IsClean(k event.Key) bool { return !s.ledger.IsDirty(k) }
