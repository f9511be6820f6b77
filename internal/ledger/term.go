package ledger

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Term is the known content of the bus in one leadership term: for each object, the last event that the bus
// has acknowledged. After the leadership term ends, the Term is empty and ignores updates, because a late
// acknowledgement says nothing about the next term. Create a term with [Ledger.NewTerm].
//
// The term can be behind the bus. It is ahead of the bus only if the bus lost events. When the forwarder
// publishes, a stale entry is harmless: the bus refuses a message that expects another event, and returns its
// own last event. When the forwarder decides to publish nothing, a stale entry stays until the next load.
type Term struct {
	ledger  *Ledger
	written map[event.Key]struct{} // keys written since the load began; nil while no load runs
	loaded  bool                   // a load has succeeded
	lost    uint64                 // see LostTotal
}

// NewTerm begins a term and ends the previous term.
func (l *Ledger) NewTerm() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetBus()
	l.term = &Term{ledger: l}
	return l.term
}

// End ends the term. The ledger keeps the reports of the informers.
func (t *Term) End() {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	if t.ledger.term == t {
		t.ledger.forgetBus()
		t.ledger.term = nil
	}
}

func (l *Ledger) forgetBus() {
	for gr, t := range l.tables {
		clean := newTable(t.dirty)
		clean.dirty, clean.awaited, clean.lacks = t.dirty, t.awaited, t.lacks
		for n, r := range t.records {
			if d := r.others().dirty; d != nil {
				kept := record{rest: &rest{dirty: d}}
				l.prune(clean, &kept)
				clean.store(n, kept)
			}
		}
		l.tables[gr] = clean
		l.release(gr, clean)
	}
}

func (t *Term) hasEnded() bool {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	return t.ledger.term != t
}

// each calls f for each resource that has events on the bus.
func (t *Term) each(f func(schema.GroupResource, *table)) {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	if t.ledger.term != t {
		return
	}
	for gr, of := range t.ledger.tables {
		if of.acked > 0 {
			f(gr, of)
		}
	}
}

// Get returns the last event of an object. The zero value means that the bus holds nothing.
func (t *Term) Get(key event.Key) event.Acked {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	if t.ledger.term != t {
		return event.Acked{}
	}
	r := t.ledger.find(key)
	return r.acked()
}

// step calls f with the record of a key, which f can change, and stores the record.
func (t *Term) step(key event.Key, f func(*table, *record)) {
	l := t.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != t {
		return
	}
	gr, n := key.GroupResource(), nameOf(key)
	of := l.table(gr)
	r := of.records[n]
	f(of, &r)
	l.prune(of, &r)
	of.store(n, r)
	l.release(gr, of)
}

// set sets the last event of an object. A load in progress does not overwrite that event.
func (t *Term) set(key event.Key, of *table, r *record, a event.Acked) {
	if t.written != nil {
		t.written[key] = struct{}{}
	}
	of.setAcked(r, a)
}

// LostTotal returns the number of times that the bus has lost the last event of an object. In each
// case, the bus had an earlier event, or no event although the object was live.
func (t *Term) LostTotal() uint64 {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	return t.lost
}

// isLoss reports whether the bus has lost the known last event of an object. bus is the object's
// last event on the bus, or the zero value if there is none. A missing event of a deleted object is
// not a loss, because a forwarder purges the events of deleted objects.
func isLoss(known, bus event.Acked) bool {
	if bus == (event.Acked{}) {
		return known.Live()
	}
	return bus.Position < known.Position
}

// Len returns the number of objects that have an event on the bus.
func (t *Term) Len() (n int) {
	t.each(func(_ schema.GroupResource, of *table) { n += of.acked })
	return n
}

// Deletes returns the number of deleted objects that have an event on the bus.
func (t *Term) Deletes() (n int) {
	t.each(func(_ schema.GroupResource, of *table) { n += of.deletes })
	return n
}

// Epoch returns the highest epoch of all events.
func (t *Term) Epoch() (highest uint16) {
	t.each(func(_ schema.GroupResource, of *table) { highest = max(highest, of.highest) })
	return highest
}

// Epochs returns the highest epoch of each resource.
func (t *Term) Epochs() map[schema.GroupResource]uint16 {
	epochs := map[schema.GroupResource]uint16{}
	t.each(func(gr schema.GroupResource, of *table) { epochs[gr] = of.highest })
	return epochs
}

// HoldsEpoch reports whether an event is the only one with the highest epoch of its resource. It
// returns false for the first epoch.
func (t *Term) HoldsEpoch(gr schema.GroupResource, a event.Acked) bool {
	t.ledger.mu.RLock()
	defer t.ledger.mu.RUnlock()
	of := t.ledger.tables[gr]
	return of != nil && a.Epoch > 0 && a.Epoch == of.highest && of.epochs[a.Epoch] == 1
}

// Resources returns the resources that have events on the bus, in no particular order.
func (t *Term) Resources() []schema.GroupResource {
	return slices.Collect(maps.Keys(t.Epochs()))
}

// Entries iterates over the last event of each object of one resource. It yields each object once,
// with the object's event at that moment. The caller can write to the ledger during the iteration.
func (t *Term) Entries(gr schema.GroupResource) iter.Seq2[event.Key, event.Acked] {
	return t.entries(gr, record.isAcked)
}

// Removals iterates over the removals of all resources: the last events of deleted objects.
func (t *Term) Removals() iter.Seq2[event.Key, event.Acked] {
	return func(yield func(event.Key, event.Acked) bool) {
		for _, gr := range t.Resources() {
			for k, a := range t.entries(gr, isRemoval) {
				if !yield(k, a) {
					return
				}
			}
		}
	}
}

func isRemoval(r record) bool {
	_, deleted, _ := r.counted()
	return deleted
}

func (t *Term) entries(gr schema.GroupResource, are func(record) bool) iter.Seq2[event.Key, event.Acked] {
	return func(yield func(event.Key, event.Acked) bool) {
		if t.hasEnded() {
			return
		}
		records := t.ledger.recordsOf(gr)
		walk(&t.ledger.mu, records, func(n name, r record) bool { return !are(r) || yield(n.key(gr), r.acked()) })
	}
}
