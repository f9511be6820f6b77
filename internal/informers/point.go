package informers

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/revision"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// Point returns the present consistency point of a resource. ok is false while the informers
// have not listed the resource, or while it does not take part in a term.
func (s *Set) Point(gr schema.GroupResource) (p ledger.Point, ok bool) {
	w := s.watchedFor(gr)
	if w == nil || !w.snapshot.done.Load() || !w.synced() {
		return ledger.Point{}, false
	}
	p = ledger.Point{Point: event.Point{Resource: w.resource, Taken: s.config.Now()}, Selection: w.selected.Load()}
	all := w.all()
	stored := make([]string, len(all))
	for n, i := range all {
		stored[n] = i.shared.GetStore().LastStoreSyncResourceVersion()
	}
	for _, i := range all {
		i.progress.Lock() // the handlers of all informers wait, so that the parts fit together
	}
	defer func() {
		for _, i := range all {
			i.progress.Unlock()
		}
	}()
	for n, i := range all {
		version, at, reached := i.progress.Reached(stored[n], i.count.none())
		if !reached {
			return ledger.Point{}, false
		}
		if p.Version == "" || revision.IsEarlier(version, p.Version) {
			p.Version = version
		}
		if p.AsOf.IsZero() || at.Before(p.AsOf) {
			p.AsOf = at
		}
		p.Objects += s.lenOf(i)
	}
	p.Mark = s.ledger.Mark(gr)
	return p, len(all) > 0
}

// Selection identifies what is known of a resource without a notification: another number
// means that objects may have been selected or deselected without a change of their own, or
// that informers started, whose first list does not show what was deleted before. It is 0 for
// a resource that is not watched.
func (s *Set) Selection(gr schema.GroupResource) uint64 {
	w := s.watchedFor(gr)
	if w == nil {
		return 0
	}
	return w.selected.Load()
}

// reselect gives a resource another selection. It comes before whatever depends on it.
func (s *Set) reselect(w *watched) { w.selected.Store(s.selections.Add(1)) }

// Marked returns a point that is reached only when the bus has every change that was reported
// before this call.
func (s *Set) Marked(p ledger.Point) ledger.Point {
	p.Mark = s.ledger.Mark(p.Resource.GroupResource())
	return p
}

// Reached reports whether the bus has every change before a point.
func (s *Set) Reached(p ledger.Point) bool { return s.ledger.Reached(p.Mark) }

// Clean calls f with every object of a resource that the bus has unless an earlier run left
// something undone, until f returns false. Objects with a change on its way are left out.
func (s *Set) Clean(gr schema.GroupResource, f func(event.Key) bool) {
	w := s.watchedFor(gr)
	if w == nil {
		return
	}
	for _, i := range w.all() {
		for _, name := range i.shared.GetStore().ListKeys() {
			if k := i.key(name); !s.ledger.IsDirty(k) && !f(k) {
				return
			}
		}
	}
}

// IsClean reports whether no change of a key is on its way to the bus.
func (s *Set) IsClean(k event.Key) bool { return !s.ledger.IsDirty(k) }
