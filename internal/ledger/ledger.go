// Package ledger keeps one record for each key. A record holds the changes that the informers
// reported and the bus might lack, and the key's last event on the bus. The pure functions [Decide]
// and [DecideForeign] decide what to publish.
//
// A [Ledger] is a state machine without I/O, a clock, or goroutines. It has three kinds of input:
// reports from the informers ([Ledger.Observe], [Ledger.AddTombstone]), results of a comparison
// with the cluster ([Ledger.MarkOutlived]), and results from the bus ([Term.Acknowledge],
// [Term.Unanswered], [Term.Put], [Term.Adopt], [Term.StartLoad]). Every method is one step under
// one lock, and does not block on anything else.
//
// A key is dirty while the bus might lack its current state, and while an event that shows its object
// for the first time is unacknowledged. For a dirty key, the ledger also stores what an informer's
// cache does not contain: tombstones, the cause and time of the state, and whether the state belongs
// to the first sync. During an outage of the bus, each changed object therefore costs the memory of
// its key and one state: the state on the bus or, after a delete, the last state. If an event of
// the object was in flight, the ledger also keeps the state in that event.
//
// The ledger keeps the reports of the informers across leadership terms. It forgets the events on the
// bus at the end of each term, because another process might publish between two terms. See [Term].
package ledger

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Ledger is safe for use by several goroutines. Make one with [New].
type Ledger struct {
	mu      sync.RWMutex
	tables  map[schema.GroupResource]*table // contains no empty table
	since   map[int64]int                   // number of dirty keys by dirty.since
	now     generation
	reports atomic.Uint64 // see Reports
	term    *Term         // nil for none
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

// record is the state of one key. The record of a clean key takes 64 bytes.
type record struct {
	packed packed // the last event on the bus; the zero value if the bus has none or rest holds it
	rest   *rest  // fields that only few keys need; nil if all are zero
}

// rest is immutable, so a copy of a record can be read without the lock. To read the value that
// dirty points to, hold the lock.
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

// acked returns the last event on the bus, or the zero value if there is none.
func (r record) acked() event.Acked {
	switch {
	case r.packed != packed{}:
		return r.packed.unpack()
	case r.rest != nil && r.rest.acked != nil:
		return *r.rest.acked
	}
	return event.Acked{}
}

// isAcked reports whether the bus has an event of the key.
func (r record) isAcked() bool { return r.packed != packed{} || r.rest != nil && r.rest.acked != nil }

// setAcked sets the last event on the bus. The zero value means that there is none.
func (r *record) setAcked(a event.Acked) {
	others := r.others()
	others.acked = nil
	var ok bool
	if r.packed, ok = pack(a); !ok && a != (event.Acked{}) {
		others.acked = &a
	}
	r.setRest(others)
}

// table returns the table of a resource, which it creates if necessary. A caller that changes the
// table calls release afterwards.
func (l *Ledger) table(gr schema.GroupResource) *table {
	t := l.tables[gr]
	if t == nil {
		t = newTable(0)
		l.tables[gr] = t
	}
	return t
}

// release drops an empty table, because resources can disappear from the cluster.
func (l *Ledger) release(gr schema.GroupResource, t *table) {
	if len(t.records) == 0 && l.tables[gr] == t {
		delete(l.tables, gr)
	}
}

// recordsOf returns the records of a resource, or nil if there are none.
func (l *Ledger) recordsOf(gr schema.GroupResource) map[name]record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.tables[gr]; t != nil {
		return t.records
	}
	return nil
}

// find returns the record of a key, or the zero value if there is none.
func (l *Ledger) find(key event.Key) record {
	if t := l.tables[key.GroupResource()]; t != nil {
		return t.records[nameOf(key)]
	}
	return record{}
}

// change calls f with the dirty part of a key. For a clean key, it first creates that part.
func (l *Ledger) change(key event.Key, now time.Time, f func(*table, *dirty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, n := l.table(key.GroupResource()), nameOf(key)
	r := t.records[n]
	if r.others().dirty == nil {
		l.makeDirty(t, &r, now)
		t.store(n, r)
	}
	f(t, r.others().dirty)
}

// makeDirty makes a clean key dirty. The caller stores the record.
func (l *Ledger) makeDirty(t *table, r *record, since time.Time) {
	others := r.others()
	others.dirty = &dirty{since: since.Unix(), lacks: l.now}
	r.setRest(others)
	t.countLacks(l.now, 1)
	l.countSince(since.Unix(), 1)
}

// changeDirty calls f with the record of a key, if the key is dirty. f may make the key clean.
func (l *Ledger) changeDirty(key event.Key, f func(*table, *record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gr := key.GroupResource()
	t := l.tables[gr]
	if t == nil {
		return
	}
	n := nameOf(key)
	r := t.records[n]
	if r.others().dirty != nil {
		f(t, &r)
		l.prune(t, &r)
		t.store(n, r)
		l.release(gr, t)
	}
}

// eachDirty calls f with the dirty part of each matching key. f may make the key clean.
func (l *Ledger) eachDirty(matches func(event.Key) bool, f func(event.Key, *table, *dirty)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for gr, t := range l.tables {
		if t.dirty == 0 {
			continue
		}
		for n, r := range t.records {
			if d := r.others().dirty; d != nil && matches(n.key(gr)) {
				f(n.key(gr), t, d)
				l.prune(t, &r)
				t.store(n, r)
			}
		}
		l.release(gr, t)
	}
}

// prune makes a dirty key clean if the bus has all of its changes.
func (l *Ledger) prune(t *table, r *record) {
	others := r.others()
	d := others.dirty
	if d == nil {
		return
	}
	if d.outlived != nil {
		if acked := r.acked(); acked.Live() && !acked.Foreign {
			d.outlived = nil // needed only while the bus has a removal or a foreign event
		}
	}
	if d.uid != "" || len(d.tombstones) > 0 || d.outlived != nil || others.attempts.hasChange() && !r.acked().Live() {
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

// moveSince sets the time of the first change that the bus lacks, and adjusts the counts.
func (l *Ledger) moveSince(d *dirty, second int64) {
	l.countSince(d.since, -1)
	d.since = second
	l.countSince(second, 1)
}

func all(event.Key) bool { return true }
