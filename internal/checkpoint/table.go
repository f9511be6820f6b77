package checkpoint

import (
	"encoding/hex"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// tables holds the entries of all resources. It is as large as the cluster, so it keeps
// counts instead of scanning.
type tables struct {
	byResource map[schema.GroupResource]*table // without empty tables
	sizes      map[schema.GroupResource]int    // initial capacity of each table
	size       int                             // number of entries in all tables
	deletes    int                             // number of those of deleted objects
}

// newTables returns empty tables, with the given initial capacities.
func newTables(sizes map[schema.GroupResource]int) *tables {
	return &tables{byResource: map[schema.GroupResource]*table{}, sizes: sizes}
}

func (t *tables) lens() map[schema.GroupResource]int {
	sizes := make(map[schema.GroupResource]int, len(t.byResource))
	for gr, table := range t.byResource {
		sizes[gr] = table.len()
	}
	return sizes
}

// get returns the zero value for a key without an entry.
func (t *tables) get(k event.Key) event.Acked {
	if table := t.byResource[k.GroupResource()]; table != nil {
		return table.get(nameOf(k))
	}
	return event.Acked{}
}

// put sets an entry. The zero value removes it.
func (t *tables) put(k event.Key, a event.Acked) {
	gr, n := k.GroupResource(), nameOf(k)
	table := t.byResource[gr]
	if table == nil {
		if a == (event.Acked{}) {
			return
		}
		table = newTable(t.sizes[gr])
		t.byResource[gr] = table
	}
	before, deletes := table.len(), table.deletes
	table.put(n, a)
	t.deletes += table.deletes - deletes
	if t.size += table.len() - before; table.len() == 0 {
		delete(t.byResource, gr)
	}
}

// epoch returns the highest epoch of all entries.
func (t *tables) epoch() uint16 {
	var highest uint16
	for _, table := range t.byResource {
		highest = max(highest, table.highest)
	}
	return highest
}

// name identifies an object within its resource.
type name struct{ namespace, name string }

func nameOf(k event.Key) name { return name{k.Namespace, k.Name} }

// table holds the entries of one resource. A packed entry has no pointers, and takes less
// than half the memory of an [event.Acked] with its two strings. An entry that cannot be
// packed has a UID that is no UUID or a version that is no number, which kube-apiserver
// never creates.
type table struct {
	packed   map[name]entry
	unpacked map[name]event.Acked
	epochs   map[uint16]int // number of entries of each epoch
	highest  uint16         // highest epoch in epochs
	deletes  int            // number of entries of deleted objects
}

type entry struct {
	uid      [16]byte
	digest   event.Digest
	version  uint64
	position uint64
	state    state
}

// state holds a time in the upper 46 bits, then an epoch of 16 bits, and two flags. Three
// fields would make each entry larger.
type state uint64

const (
	deletedFlag = 1 << iota
	deselectedFlag

	epochShift = 2
	timeShift  = epochShift + 16
)

// stateOf returns a state without the upper bits of a time that is too long.
func stateOf(a event.Acked) state {
	s := state(a.Epoch) << epochShift
	if a.Deleted {
		s |= deletedFlag
	}
	if a.Deselected {
		s |= deselectedFlag
	}
	return s.at(a.Time)
}

// at returns the state with another time.
func (s state) at(ms int64) state { return s&(1<<timeShift-1) | state(ms)<<timeShift }

func (s state) time() int64      { return int64(s >> timeShift) }
func (s state) epoch() uint16    { return uint16(s >> epochShift) }
func (s state) deleted() bool    { return s&deletedFlag != 0 }
func (s state) deselected() bool { return s&deselectedFlag != 0 }

func newTable(size int) *table {
	return &table{packed: make(map[name]entry, size), unpacked: map[name]event.Acked{}, epochs: map[uint16]int{}}
}

func (t *table) len() int { return len(t.packed) + len(t.unpacked) }

// get returns the zero value for a name without an entry.
func (t *table) get(n name) event.Acked {
	if e, ok := t.packed[n]; ok {
		return e.unpack()
	}
	return t.unpacked[n]
}

// holds reports whether there is an entry of a name.
func (t *table) holds(n name) bool {
	_, packed := t.packed[n]
	_, unpacked := t.unpacked[n]
	return packed || unpacked
}

// put sets an entry. The zero value removes it. It replaces an existing entry in place, so
// that a concurrent walk visits it once.
func (t *table) put(n name, a event.Acked) {
	epoch, deleted, existed := t.find(n)
	e, ok := pack(a)
	switch {
	case ok:
		t.packed[n] = e
		delete(t.unpacked, n)
	case a == event.Acked{}:
		delete(t.packed, n)
		delete(t.unpacked, n)
	default:
		t.unpacked[n] = a
		delete(t.packed, n)
	}
	if a != (event.Acked{}) {
		t.epochs[a.Epoch]++
		t.highest = max(t.highest, a.Epoch)
	}
	if existed {
		t.leaveEpoch(epoch)
	}
	if a.Deleted {
		t.deletes++
	}
	if deleted {
		t.deletes--
	}
}

// find returns what put counts of an entry.
func (t *table) find(n name) (epoch uint16, deleted, ok bool) {
	if e, ok := t.packed[n]; ok {
		return e.state.epoch(), e.state.deleted(), true
	}
	a, ok := t.unpacked[n]
	return a.Epoch, a.Deleted, ok
}

// leaveEpoch removes an entry from the count of its epoch. Retention keeps the last entry
// of the highest epoch, so a scan of the epochs is rare.
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

// pack returns false if unpack would not restore every byte.
func pack(a event.Acked) (entry, bool) {
	e := entry{digest: a.Digest, position: a.Position, state: stateOf(a)}
	var err error
	if e.version, err = strconv.ParseUint(a.ResourceVersion, 10, 64); err != nil || len(a.UID) != len(uuidForm) {
		return entry{}, false
	}
	digits := make([]byte, 0, 2*len(e.uid))
	for i := range len(a.UID) {
		if uuidForm[i] != '-' {
			digits = append(digits, a.UID[i])
		}
	}
	if _, err := hex.Decode(e.uid[:], digits); err != nil {
		return entry{}, false
	}
	return e, e.unpack() == a
}

const uuidForm = "00000000-0000-0000-0000-000000000000"

func (e entry) unpack() event.Acked {
	var stack [len(uuidForm)]byte
	uid := hex.AppendEncode(stack[:0], e.uid[:4])
	for _, part := range [][]byte{e.uid[4:6], e.uid[6:8], e.uid[8:10], e.uid[10:]} {
		uid = hex.AppendEncode(append(uid, '-'), part)
	}
	return event.Acked{
		UID: string(uid), ResourceVersion: strconv.FormatUint(e.version, 10),
		Digest: e.digest, Epoch: e.state.epoch(), Deleted: e.state.deleted(), Deselected: e.state.deselected(), Time: e.state.time(), Position: e.position,
	}
}
