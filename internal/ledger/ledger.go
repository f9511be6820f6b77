// Package ledger has one record for each key: what the informers reported and the bus may lack,
// and what the bus has. It decides what to publish: see the pure functions [Decide] and
// [DecideForeign].
//
// A [Ledger] is a state machine without I/O, clock and goroutines. Its inputs are what the informers
// report ([Ledger.Observe], [Ledger.AddTombstone]), what a comparison with the cluster finds
// ([Ledger.MarkOutlived]), and what the bus answers ([Term.Acknowledge], [Term.Unanswered],
// [Term.Put], [Term.Adopt], [Term.StartLoad]). Every method is one step under one lock, and
// does not block on anything else.
//
// A key is dirty while the bus may lack its present state. For a dirty key, the ledger also has
// what an informer's cache cannot tell: tombstones, how and when the state became known, and
// whether it belongs to the first sync. So during an outage of the bus, each changed object costs its
// key and one state: the one that the bus has, or, after a delete, the last one.
//
// What the informers reported outlives a leadership term. What the bus has does not, because
// another process may publish between two terms. See [Term].
package ledger

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Ledger is safe for use by several goroutines. Make one with [New].
type Ledger struct {
	mu     sync.RWMutex
	tables map[schema.GroupResource]*table // without empty ones
	since  map[int64]int                   // number of dirty keys by the second of their first change, in Unix time
	now    generation
	term   *Term // nil for none
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{tables: map[schema.GroupResource]*table{}, since: map[int64]int{}, now: 1}
}

// name identifies an object within its resource.
type name struct{ namespace, name string }

func nameOf(k event.Key) name { return name{k.Namespace, k.Name} }

func (n name) key(gr schema.GroupResource) event.Key {
	return event.Key{Group: gr.Group, Resource: gr.Resource, Namespace: n.namespace, Name: n.name}
}

// record is what is known of one key. A clean key takes 64 bytes.
type record struct {
	packed packed // the last event on the bus; the zero value if there is none, or if it is in rest
	rest   *rest  // what only few keys have; nil for nothing
}

// rest is immutable, so that a copy of a record can be read without the lock. Only the value
// behind dirty needs the lock.
type rest struct {
	acked    *event.Acked // the last event on the bus, if it cannot be packed
	dirty    *dirty       // nil for a clean key
	attempts *attempts    // nil for none
}

func (r *record) setRest(to rest) {
	r.rest = nil
	if to != (rest{}) {
		r.rest = &to
	}
}

func (r record) others() rest {
	if r.rest == nil {
		return rest{}
	}
	return *r.rest
}

// acked returns the last event on the bus, the zero value for none.
func (r record) acked() event.Acked {
	switch {
	case r.packed != packed{}:
		return r.packed.unpack()
	case r.rest != nil && r.rest.acked != nil:
		return *r.rest.acked
	}
	return event.Acked{}
}

// isAcked reports whether the bus has an event.
func (r record) isAcked() bool { return r.packed != packed{} || r.rest != nil && r.rest.acked != nil }

// setAcked sets the last event on the bus, the zero value for none.
func (r *record) setAcked(a event.Acked) {
	others := r.others()
	others.acked = nil
	var ok bool
	if r.packed, ok = pack(a); !ok && a != (event.Acked{}) {
		others.acked = &a
	}
	r.setRest(others)
}

// table returns the table of a resource. The caller calls release after changing it.
func (l *Ledger) table(gr schema.GroupResource) *table {
	t := l.tables[gr]
	if t == nil {
		t = newTable(0)
		l.tables[gr] = t
	}
	return t
}

// release drops an empty table: resources come and go.
func (l *Ledger) release(gr schema.GroupResource, t *table) {
	if len(t.records) == 0 && l.tables[gr] == t {
		delete(l.tables, gr)
	}
}

// recordsOf returns the records of a resource, nil for none.
func (l *Ledger) recordsOf(gr schema.GroupResource) map[name]record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.tables[gr]; t != nil {
		return t.records
	}
	return nil
}

// find returns the record of a key, the zero value for none.
func (l *Ledger) find(key event.Key) record {
	if t := l.tables[key.GroupResource()]; t != nil {
		return t.records[nameOf(key)]
	}
	return record{}
}

// change calls f with the dirty part of a key. It makes one for a clean key.
func (l *Ledger) change(key event.Key, now time.Time, f func(*table, *dirty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, n := l.table(key.GroupResource()), nameOf(key)
	r := t.records[n]
	d := r.others().dirty
	if d == nil {
		d = &dirty{since: now.Unix(), lacks: l.now}
		others := r.others()
		others.dirty = d
		r.setRest(others)
		t.store(n, r)
		t.countLacks(d.lacks, 1)
		l.countSince(d.since, 1)
	}
	f(t, d)
}

// changeDirty calls f with the dirty part of a key, if it is dirty. f may make it clean.
func (l *Ledger) changeDirty(key event.Key, f func(*table, *dirty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gr := key.GroupResource()
	t := l.tables[gr]
	if t == nil {
		return
	}
	n := nameOf(key)
	r := t.records[n]
	if d := r.others().dirty; d != nil {
		f(t, d)
		l.prune(t, &r)
		t.store(n, r)
		l.release(gr, t)
	}
}

// eachDirty calls f with the dirty part of each key that matches. f may make it clean.
func (l *Ledger) eachDirty(matches func(event.Key) bool, f func(*table, *dirty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for gr, t := range l.tables {
		if t.dirty == 0 {
			continue
		}
		for n, r := range t.records {
			if d := r.others().dirty; d != nil && matches(n.key(gr)) {
				f(t, d)
				l.prune(t, &r)
				t.store(n, r)
			}
		}
		l.release(gr, t)
	}
}

// prune makes a dirty key clean if the bus lacks nothing of it.
func (l *Ledger) prune(t *table, r *record) {
	others := r.others()
	d := others.dirty
	if d.uid != "" || len(d.tombstones) > 0 || d.outlived != 0 {
		return
	}
	t.removeFromFirstSync(d)
	l.countSince(d.since, -1)
	t.countLacks(d.lacks, -1)
	others.dirty = nil
	r.setRest(others)
}

func (l *Ledger) countSince(second int64, n int) {
	if l.since[second] += n; l.since[second] == 0 {
		delete(l.since, second)
	}
}
