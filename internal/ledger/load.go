package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Load collects the last event of every object on the bus. It ends with [Load.Finish] or [Load.Cancel].
// Only one goroutine may use it.
type Load struct {
	term   *Term
	tables map[schema.GroupResource]*table
}

// StartLoad starts a load. Only one may run at a time.
func (t *Term) StartLoad() *Load {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	t.written = map[event.Key]struct{}{}
	return &Load{t, map[schema.GroupResource]*table{}}
}

// Put sets the last event of an object. The zero value means that the bus has none.
func (l *Load) Put(key event.Key, a event.Acked) {
	gr := key.GroupResource()
	t := l.tables[gr]
	if t == nil {
		t = newTable(0)
		l.tables[gr] = t
	}
	t.put(nameOf(key), a)
}

// Cancel ends the load without an effect on the ledger.
func (l *Load) Cancel() {
	l.term.ledger.mu.Lock()
	defer l.term.ledger.mu.Unlock()
	l.term.written = nil
}

// Finish replaces the known events on the bus with the result of the load, record by record.
// Entries that were written since the load started are newer, so Finish keeps them. It returns the
// number of objects whose last event the bus has lost (see [Term.LostTotal]).
//
// If no restore explains the epoch of an event (see [event.MaxEpochJump]), the load ignores the
// order of that event: every state of the object counts as later. Finish passes each such event to
// refused.
//
// From the second load of a term on, an unexpected event makes the entry foreign (see
// [event.Acked]). An event at an earlier position does not, because it shows that the bus lost its
// latest events.
func (l *Load) Finish(refused func(event.Key, event.Acked, error)) (lost int) {
	known := l.term.Epochs()
	for gr, t := range l.tables {
		t.boundEpochs(gr, known[gr], refused)
	}
	for gr := range known {
		if l.tables[gr] == nil {
			l.tables[gr] = newTable(0) // the bus has lost every event
		}
	}
	for gr, t := range l.tables {
		lost += l.replace(gr, t)
	}
	ledger := l.term.ledger
	ledger.mu.Lock()
	defer ledger.mu.Unlock()
	l.term.written, l.term.loaded = nil, true
	if ledger.term == l.term {
		for _, t := range ledger.tables {
			t.shrink()
		}
	}
	return lost
}

// replace replaces the entries of a resource with the loaded entries. It returns the number of objects whose
// last event the bus has lost. It holds the write lock only while it sets an entry, and most loaded events
// are already known. So it hardly delays acknowledgements.
func (l *Load) replace(gr schema.GroupResource, loaded *table) (lost int) {
	ledger := l.term.ledger
	records := ledger.recordsOf(gr)
	found := 0
	walk(&ledger.mu, records, func(n name, was record) bool {
		is, ok := loaded.records[n]
		if ok {
			found++
		}
		if ok && !was.packed.isKnown(is.packed) || !ok && was.isAcked() {
			lost += l.set(gr, n, is)
		}
		return true
	})
	if found < len(loaded.records) {
		for n, is := range loaded.records { // setting a record again changes nothing
			l.set(gr, n, is)
		}
	}
	return lost
}

// set replaces the recorded event of an object with the loaded event, or removes it if the load
// found none. It returns 1 if the bus has lost the last event of the object, and 0 otherwise.
func (l *Load) set(gr schema.GroupResource, n name, is record) (lost int) {
	ledger := l.term.ledger
	ledger.mu.Lock()
	defer ledger.mu.Unlock()
	if !l.isOpen(n.key(gr)) {
		return 0
	}
	t := ledger.table(gr)
	was, now := t.records[n].acked(), is.acked()
	if isLoss(was, now) {
		l.term.lost++
		lost = 1
	}
	if is.isAcked() {
		now = completeLoaded(was, now, l.term.loaded)
	}
	r := t.records[n]
	if loaded := is.acked(); now.Foreign && r.others().attempts.hasRemoval(loaded) {
		now = loaded
	}
	t.setAcked(&r, now)
	r.dropRefused()
	ledger.prune(t, &r)
	t.store(n, r)
	ledger.release(gr, t)
	return lost
}

// isKnown reports whether a loaded event is the known event. The digests can differ, because the
// known digest can be newer.
func (p packed) isKnown(is packed) bool {
	is.digest = p.digest
	return p == is && p != packed{}
}

// isOpen reports whether the load can still set the event of a key. It cannot if the key was written
// during the load, or if the term has ended.
func (l *Load) isOpen(key event.Key) bool {
	_, written := l.term.written[key]
	return !written && l.term.ledger.term == l.term
}

// completeLoaded returns the entry for a loaded event, given the previous entry and the entry that
// was loaded. The digest in the previous entry can be newer than the digest in the loaded one:
// after a change of the projection, the forwarder computes the digest of the content on the bus.
// known means that an earlier load of the term has succeeded. In the first load, an unexpected
// event is not foreign.
func completeLoaded(was, is event.Acked, known bool) event.Acked {
	switch {
	case was == event.Acked{} && known:
		return was.Before(is)
	case was == event.Acked{}:
	case was.IsSameEvent(is):
		is.Digest, is.Foreign = was.Digest, was.Foreign
	case known && is.Position >= was.Position:
		return was.Before(is)
	}
	return is
}
