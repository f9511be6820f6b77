package ledger

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Load collects what the bus has of every object, until [Load.Finish] or [Load.Cancel]. It is
// for one goroutine.
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

// Put adds the last event of an object, and replaces an earlier one. The zero value means that
// the bus holds nothing.
func (l *Load) Put(key event.Key, a event.Acked) {
	gr := key.GroupResource()
	t := l.tables[gr]
	if t == nil {
		t = newTable(0)
		l.tables[gr] = t
	}
	t.put(nameOf(key), a)
}

// Cancel ends a load without an effect.
func (l *Load) Cancel() {
	l.term.ledger.mu.Lock()
	defer l.term.ledger.mu.Unlock()
	l.term.written = nil
}

// Finish replaces what is known of the bus, record by record. What was written since the load
// started is newer, and stays. It returns the number of existing objects whose events the bus
// no longer has.
//
// An event that shows an object in an epoch that no restore explains (see
// [event.MaxEpochJump]) is not believed about its order: every state of the object is later.
// Refused gets each such event.
//
// From the second load of a term on, an event that is not the known one makes the entry
// foreign, see [event.Acked]. An event at an earlier position does not: the bus lost its end.
func (l *Load) Finish(refused func(event.Key, event.Acked, error)) (lost int) {
	known := l.term.Epochs()
	for gr, t := range l.tables {
		t.boundEpochs(gr, known[gr], refused)
	}
	for gr, t := range l.tables {
		l.replace(gr, t)
	}
	for _, gr := range l.term.Resources() {
		lost += l.drop(gr)
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

// replace sets what was loaded of a resource. It releases the lock after every batch, so that
// acknowledgements do not wait.
func (l *Load) replace(gr schema.GroupResource, loaded *table) {
	mu, n := &l.term.ledger.mu, 0
	mu.Lock()
	defer mu.Unlock()
	for name, is := range loaded.records {
		if n++; n%walkBatch == 0 {
			mu.Unlock()
			mu.Lock()
		}
		if l.isOpen(name.key(gr)) {
			l.term.ledger.table(gr).follow(name, is, l.term.loaded)
		}
	}
}

// drop removes the events of a resource that the bus no longer has. It returns the number of
// those of existing objects.
func (l *Load) drop(gr schema.GroupResource) (lost int) {
	ledger := l.term.ledger
	t, records := ledger.recordsOf(gr)
	var loaded map[name]record
	if of := l.tables[gr]; of != nil {
		loaded = of.records
	}
	walk(&ledger.mu, records, func(n name, _ record) bool {
		if _, ok := loaded[n]; ok {
			return true
		}
		ledger.mu.Lock()
		defer ledger.mu.Unlock()
		if r := t.records[n]; r.isAcked() && l.isOpen(n.key(gr)) {
			if _, deleted, _ := r.counted(); !deleted && r.acked().UID != "" {
				lost++
			}
			t.put(n, event.Acked{})
			ledger.release(gr, t)
		}
		return true
	})
	return lost
}

// isOpen reports whether the load decides about a key.
func (l *Load) isOpen(key event.Key) bool {
	_, written := l.term.written[key]
	return !written && l.term.ledger.term == l.term
}

// follow sets the event of an object to one that was loaded, completed with what was known
// before. It unpacks only an event that has changed.
func (t *table) follow(n name, is record, known bool) {
	was := t.records[n]
	same := was.packed
	same.digest, same.state = is.packed.digest, same.state.at(is.packed.state.time())
	if was.packed == (packed{}) || same != is.packed {
		t.put(n, follow(was.acked(), is.acked(), known))
		return
	}
	if is.packed.digest = was.packed.digest; is.packed != was.packed {
		was.packed = is.packed
		t.store(n, was)
	}
}

// follow completes the event of an object that was loaded with what was known of it before.
// The known digest can be newer than that of the event: after a change of the projection, the
// forwarder computes the digest of what is on the bus. Unless everything that the bus holds is
// known, an unexpected event is not foreign.
func follow(was, is event.Acked, known bool) event.Acked {
	switch {
	case was == event.Acked{} && known:
		return was.Before(is)
	case was == event.Acked{}:
	case was.IsSameEvent(is):
		is.Digest, is.Foreign = was.Digest, was.Foreign
	case was.Foreign && was.Position == is.Position:
		return was
	case known && is.Position >= was.Position:
		return was.Before(is)
	}
	return is
}
