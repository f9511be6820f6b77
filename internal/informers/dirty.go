package informers

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/failpoint"
)

// dirty is what must be remembered of a key until the bus has acknowledged it
// and what the indexer cannot tell: tombstones, how and when the state became
// known, and whether it belongs to the first sync. It holds an entry only for
// keys whose state is not on the bus yet. Objects in tombstones were in the
// indexer before, so a bus that is down costs no memory beyond the keys.
type dirty struct {
	mu      sync.Mutex
	entries map[event.Key]*mark
	many    bool                         // there have been, as in a first sync
	initial map[schema.GroupResource]int // marks with firstSync, per resource
}

type mark struct {
	uid, version string // of the state last reported; "" where there is none
	cause        event.Cause
	observed     time.Time
	firstSync    bool
	before       *event.Object // the state that the bus is known to have, nil if none is
	tombstones   []event.Tombstone
}

func newDirty() *dirty {
	return &dirty{entries: map[event.Key]*mark{}, initial: map[schema.GroupResource]int{}}
}

// observe notes a state of an object that was reported, and the state before it, which
// may be nil. That is what the bus has, if the key was clean.
func (d *dirty) observe(key event.Key, before, o *event.Object, cause event.Cause, firstSync bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.entry(key)
	if m.uid == "" || failpoint.Bug("compare-with-last-seen") {
		m.before = before
	}
	m.uid, m.version, m.cause, m.observed = string(o.UID), o.ResourceVersion, cause, now
	// What was deleted and exists is back: it left the selection and returned,
	// or etcd was restored.
	m.drop(func(t event.Tombstone) bool { return t.UID == m.uid })
	if firstSync && !m.firstSync {
		m.firstSync = true
		d.initial[key.GroupResource()]++
	}
}

// include notes that a state belongs to the first sync, which begins after it was
// reported. Of one that is remembered a later state may have been reported since it was
// read, and the object's end.
func (d *dirty) include(key event.Key, o *event.Object, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.entries[key]; ok && m.has(string(o.UID)) {
		return
	}
	m := d.entry(key)
	if m.uid == "" {
		m.uid, m.version, m.observed = string(o.UID), o.ResourceVersion, now
	}
	m.cause = event.CauseSnapshot
	if !m.firstSync {
		m.firstSync = true
		d.initial[key.GroupResource()]++
	}
}

// bury notes that a UID is gone. The object of a real notification replaces the
// missing one of an inference.
func (d *dirty) bury(key event.Key, t event.Tombstone) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.entry(key)
	m.drop(func(old event.Tombstone) bool {
		if old.UID != t.UID {
			return false
		}
		deselected := t.Deselected && old.Deselected // what is gone is gone, however that was found
		if t.Object == nil {
			t = old
		}
		t.Deselected = deselected
		return true
	})
	m.tombstones = append(m.tombstones, t)
	if m.uid == t.UID {
		m.forget(d, key)
	}
}

// describe completes a view.
func (d *dirty) describe(key event.Key, v *event.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.entries[key]
	if !ok {
		return
	}
	v.Tombstones = append([]event.Tombstone(nil), m.tombstones...)
	if v.Live != nil && m.uid == string(v.Live.UID) {
		v.Cause, v.Observed, v.FirstSync, v.Before = m.cause, m.observed, m.firstSync, m.before
	}
}

// follows notes which state the bus has, of a key of which a later one is to follow.
func (d *dirty) follows(key event.Key, before *event.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.entries[key]; ok && m.uid == string(before.UID) {
		m.before = before
	}
}

// settle drops what is covered by what the bus holds now.
func (d *dirty) settle(key event.Key, acked event.Acked, attempted string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.entries[key]
	if !ok {
		return
	}
	// The delete of a UID is due only while the bus shows that UID as existing.
	m.drop(func(t event.Tombstone) bool {
		return (!acked.Live() || t.UID != acked.UID) && (attempted == "" || t.UID != attempted)
	})
	if acked.Live() && m.uid == acked.UID && m.version == acked.ResourceVersion {
		m.forget(d, key)
	}
	d.prune(key, m)
}

// abandon forgets the reported states of the keys that a stopped informer has
// covered. Tombstones stay: what they say remains true.
func (d *dirty) abandon(covers func(event.Key) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, m := range d.entries {
		if covers(key) {
			m.forget(d, key)
			d.prune(key, m)
		}
	}
}

// abandonKey does so for one key.
func (d *dirty) abandonKey(key event.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.entries[key]; ok {
		m.forget(d, key)
		d.prune(key, m)
	}
}

// firstSyncLeft is the number of keys of the resource's first sync that the bus
// has not acknowledged.
func (d *dirty) firstSyncLeft(gr schema.GroupResource) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.initial[gr]
}

func (d *dirty) countOff(gr schema.GroupResource) {
	if d.initial[gr]--; d.initial[gr] == 0 {
		delete(d.initial, gr) // resources come and go
	}
}

// excuse lets a first sync be complete without a key.
func (d *dirty) excuse(key event.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.entries[key]; ok && m.firstSync {
		m.firstSync = false
		d.countOff(key.GroupResource())
	}
}

// buried tells whether there are tombstones of a key.
func (d *dirty) buried(key event.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.entries[key]
	return ok && len(m.tombstones) > 0
}

// forgetFirstSyncs leaves no first sync under way.
func (d *dirty) forgetFirstSyncs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.entries {
		m.firstSync = false
	}
	clear(d.initial)
}

// forgetBefore forgets what was observed before a time.
func (d *dirty) forgetBefore(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, m := range d.entries {
		m.drop(func(t event.Tombstone) bool { return t.Observed.Before(at) })
		if m.observed.Before(at) {
			m.forget(d, key)
		}
		d.prune(key, m)
	}
}

// keysOf gives the keys of a resource of which something is remembered.
func (d *dirty) keysOf(gr schema.GroupResource) []event.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []event.Key
	for key := range d.entries {
		if key.GroupResource() == gr {
			keys = append(keys, key)
		}
	}
	return keys
}

func (d *dirty) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries)
}

func (d *dirty) entry(key event.Key) *mark {
	m, ok := d.entries[key]
	if !ok {
		m = &mark{}
		d.entries[key] = m
		d.many = d.many || len(d.entries) > 1000
	}
	return m
}

func (d *dirty) prune(key event.Key, m *mark) {
	if m.uid != "" || len(m.tombstones) > 0 {
		return
	}
	if delete(d.entries, key); len(d.entries) == 0 && d.many {
		d.entries, d.many = map[event.Key]*mark{}, false // a map keeps the memory of the most that it had
	}
}

// forget drops the reported state and leaves the tombstones.
func (m *mark) forget(d *dirty, key event.Key) {
	if m.firstSync {
		d.countOff(key.GroupResource())
	}
	*m = mark{tombstones: m.tombstones}
}

// has tells whether there is a tombstone of a UID.
func (m *mark) has(uid string) bool {
	return slices.ContainsFunc(m.tombstones, func(t event.Tombstone) bool { return t.UID == uid })
}

func (m *mark) drop(where func(event.Tombstone) bool) {
	kept := m.tombstones[:0]
	for _, t := range m.tombstones {
		if !where(t) {
			kept = append(kept, t)
		}
	}
	clear(m.tombstones[len(kept):])
	m.tombstones = kept
}
