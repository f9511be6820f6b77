package ledger

import (
	"sync"

	"github.com/kuberelay/kuberelay/internal/event"
)

// table holds the records of one resource. A resource can have very many records, so the table
// keeps counts instead of scanning.
type table struct {
	records map[name]record
	largest int // highest number of records since the map was made

	acked   int            // records with an event on the bus
	deletes int            // records whose event on the bus is a removal
	epochs  map[uint16]int // number of events of each epoch
	highest uint16         // highest epoch in epochs

	dirty   int                // number of dirty records
	awaited int                // dirty records that the first sync waits for
	lacks   map[generation]int // number of dirty records by the generation of the first change that the bus lacks
}

func newTable(size int) *table {
	return &table{records: make(map[name]record, size), epochs: map[uint16]int{}, lacks: map[generation]int{}}
}

// store writes a record, or removes it if it is the zero value. It replaces an existing record in
// place, so that a concurrent walk visits it once.
func (t *table) store(n name, r record) {
	if r == (record{}) {
		delete(t.records, n)
		return
	}
	t.records[n] = r
	t.largest = max(t.largest, len(t.records))
}

// put sets the last event of an object on the bus. The zero value means that the bus has none.
func (t *table) put(n name, a event.Acked) {
	r := t.records[n]
	t.setAcked(&r, a)
	t.store(n, r)
}

// setAcked sets the last event in a record that the caller stores afterwards.
func (t *table) setAcked(r *record, a event.Acked) {
	epoch, deleted, existed := r.counted()
	r.setAcked(a)
	if a != (event.Acked{}) {
		t.acked++
		t.epochs[a.Epoch]++
		t.highest = max(t.highest, a.Epoch)
	}
	if existed {
		t.acked--
		t.leaveEpoch(epoch)
	}
	if a.Deleted {
		t.deletes++
	}
	if deleted {
		t.deletes--
	}
}

// counted returns the properties of a record that setAcked counts. ok means that the bus has an
// event.
func (r record) counted() (epoch uint16, deleted, ok bool) {
	if r.packed != (packed{}) {
		return r.packed.state.epoch(), r.packed.state.deleted(), true
	}
	if r.rest == nil || r.rest.acked == nil {
		return 0, false, false
	}
	return r.rest.acked.Epoch, r.rest.acked.Deleted, true
}

// leaveEpoch removes an event from the count of its epoch. It scans the epochs only if the highest
// epoch has no event left. Such scans are rare, because retention keeps the last event of the
// highest epoch.
func (t *table) leaveEpoch(epoch uint16) {
	if t.epochs[epoch]--; t.epochs[epoch] > 0 {
		return
	}
	if delete(t.epochs, epoch); epoch == t.highest {
		t.highest = 0
		for other := range t.epochs {
			t.highest = max(t.highest, other)
		}
	}
}

// countLacks adds n to the number of dirty records of a generation.
func (t *table) countLacks(g generation, n int) {
	t.dirty += n
	if t.lacks[g] += n; t.lacks[g] == 0 {
		delete(t.lacks, g)
	}
}

// shrink copies the map if most of its records are gone, because a Go map never shrinks.
func (t *table) shrink() {
	if len(t.records) > t.largest/8 {
		return
	}
	all := make(map[name]record, len(t.records))
	for n, r := range t.records {
		all[n] = r
	}
	t.records, t.largest = all, len(all)
}

// walkBatch is the number of records that walk reads per lock, which takes about 50 µs.
const walkBatch = 256

// walk calls f for each of the records that mu guards, until f returns false. It calls f without
// the lock and releases the lock after every batch, so writers make progress. If a record is added
// or removed during the walk, f might or might not receive it.
func walk(mu *sync.RWMutex, records map[name]record, f func(name, record) bool) {
	type pair struct {
		name   name
		record record
	}
	batch := make([]pair, 0, walkBatch)
	call := func() bool {
		for _, p := range batch {
			if !f(p.name, p.record) {
				return false
			}
		}
		batch = batch[:0]
		return true
	}
	mu.RLock()
	for n, r := range records {
		if batch = append(batch, pair{n, r}); len(batch) < walkBatch {
			continue
		}
		mu.RUnlock()
		if !call() {
			return
		}
		mu.RLock() // Go allows changes to a map between two iterations of a range over it
	}
	mu.RUnlock()
	call()
}
