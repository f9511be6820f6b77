// Package dirty remembers what must be known of a key until the bus has acknowledged its
// state, and what the cache of an informer cannot tell: tombstones, how and when the state
// became known, and whether it belongs to the first sync.
//
// A key is dirty while the bus may lack its present state. Only dirty keys have an entry.
// The objects in tombstones were in the cache before, so a bus that is down costs no memory
// beyond the keys.
package dirty

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Keys are the dirty keys of one cluster. Make one with [New]. Its methods do not block.
type Keys struct {
	mu      sync.Mutex
	entries map[event.Key]*entry
	since   map[int64]int                // how many entries became dirty in a second, Unix time
	many    bool                         // there have been many, as in a first sync
	initial map[schema.GroupResource]int // entries of the first sync, per resource
	marks   marks
}

type entry struct {
	uid, version string // of the state last reported; "" where there is none
	since        int64  // when the first change that the bus lacks was reported, in seconds of Unix time
	cause        event.Cause
	observed     time.Time
	firstSync    bool
	before       *event.Object // the state that the bus is known to have, nil if none is
	tombstones   []event.Tombstone
	outlived     uint64 // see [event.View], as the next one

	unpublishable bool

	lacks, last generation // see [Keys.Mark]
	boundary    string     // the version of the first state that was reported in last
}

// New makes Keys without an entry.
func New() *Keys {
	return &Keys{
		entries: map[event.Key]*entry{}, since: map[int64]int{}, initial: map[schema.GroupResource]int{},
		marks: marks{1, map[schema.GroupResource]map[generation]int{}},
	}
}

// Observe records a state of an object that was reported, and the state before it, which
// may be nil. If the key was clean, the bus has the state before.
func (d *Keys) Observe(key event.Key, before, o *event.Object, cause event.Cause, firstSync bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(key, now)
	if e.uid == "" {
		e.before = before
	}
	e.unpublishable = e.unpublishable && e.uid == string(o.UID) && e.version == o.ResourceVersion
	e.uid, e.version, e.cause, e.observed = string(o.UID), o.ResourceVersion, cause, now
	if e.last != d.marks.now {
		e.last, e.boundary = d.marks.now, o.ResourceVersion
	}
	// An object that was deleted and exists is back: it left the selection and returned, or
	// etcd was restored.
	e.drop(func(t event.Tombstone) bool { return t.UID == e.uid })
	if firstSync {
		d.addToFirstSync(key, e)
	}
}

// AddTombstone records that a UID is gone. The object of a notification replaces the
// missing one of an inferred delete.
func (d *Keys) AddTombstone(key event.Key, t event.Tombstone) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entry(key, t.Observed)
	e.drop(func(old event.Tombstone) bool {
		if old.UID != t.UID {
			return false
		}
		// Gone wins, however that was found.
		deselected, confirmed := t.Deselected && old.Deselected, t.Confirmed || old.Confirmed
		if t.Object == nil {
			t = old
		}
		t.Deselected, t.Confirmed = deselected, confirmed
		return true
	})
	e.tombstones = append(e.tombstones, t)
	e.outlived = 0
	if e.uid == t.UID {
		d.forget(key, e)
	}
}

// HasTombstone reports whether there is a tombstone of a key.
func (d *Keys) HasTombstone(key event.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	return ok && len(e.tombstones) > 0
}

// MarkOutlived records that the informers are right about a key, despite the delete or the
// foreign event at a position of the bus.
func (d *Keys) MarkOutlived(key event.Key, position uint64, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entry(key, now).outlived = position
}

// Outlived returns that position, 0 for none.
func (d *Keys) Outlived(key event.Key) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok {
		return e.outlived
	}
	return 0
}

// Describe completes a view.
func (d *Keys) Describe(key event.Key, v *event.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return
	}
	v.Tombstones = append([]event.Tombstone(nil), e.tombstones...)
	v.Outlived, v.Unpublishable = e.outlived, e.unpublishable
	if v.Live != nil && e.uid == string(v.Live.UID) {
		v.Cause, v.Observed, v.FirstSync, v.Before = e.cause, e.observed, e.firstSync, e.before
	}
}

// Acknowledged records that the bus has come to hold a state of a key that it did not hold:
// o, or nil if that is a delete. The key lacks only what was reported after it.
func (d *Keys) Acknowledged(key event.Key, o *event.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok || e.uid == "" {
		return
	}
	d.countSince(e.since, -1)
	e.since = e.observed.Unix()
	d.countSince(e.since, 1)
	if o != nil && e.uid == string(o.UID) {
		e.before = o
		if e.covers(o) {
			d.marks.count(key, e.lacks, -1)
			e.lacks = e.last
			d.marks.count(key, e.lacks, 1)
		}
	}
}

// Settle drops what the bus holds now. The tombstone of the UID attempted stays, "" for
// none: the bus may show that UID although it has not said so.
func (d *Keys) Settle(key event.Key, acked event.Acked, attempted string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return
	}
	// The delete of a UID is due only while the bus shows that UID as existing.
	e.drop(func(t event.Tombstone) bool {
		return (!acked.Live() || t.UID != acked.UID) && (attempted == "" || t.UID != attempted)
	})
	if acked.Live() && e.uid == acked.UID && e.version == acked.ResourceVersion {
		d.forget(key, e)
	}
	if acked.Live() || acked.Position != e.outlived {
		e.outlived = 0
	}
	d.prune(key, e)
}

// Abandon forgets the reported state of a key. Its tombstones stay: they remain true.
func (d *Keys) Abandon(key event.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[key]; ok {
		d.forget(key, e)
		d.prune(key, e)
	}
}

// AbandonAll does so for all keys that match: those that a stopped informer has covered.
func (d *Keys) AbandonAll(matches func(event.Key) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, e := range d.entries {
		if matches(key) {
			d.forget(key, e)
			d.prune(key, e)
		}
	}
}

// ForgetAll forgets everything that is known of the keys that match, tombstones included.
func (d *Keys) ForgetAll(matches func(event.Key) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, e := range d.entries {
		if matches(key) {
			d.forget(key, e)
			e.tombstones = nil
			d.prune(key, e)
		}
	}
}

// ForgetBefore forgets everything that was observed before a time.
func (d *Keys) ForgetBefore(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, e := range d.entries {
		e.drop(func(t event.Tombstone) bool { return t.Observed.Before(at) })
		if e.observed.Before(at) {
			d.forget(key, e)
		}
		d.prune(key, e)
	}
}

// All returns the dirty keys.
func (d *Keys) All() []event.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.entries))
}

// Of returns the dirty keys of a resource.
func (d *Keys) Of(gr schema.GroupResource) []event.Key {
	return slices.DeleteFunc(d.All(), func(k event.Key) bool { return k.GroupResource() != gr })
}

func (d *Keys) entry(key event.Key, now time.Time) *entry {
	e, ok := d.entries[key]
	if !ok {
		e = &entry{since: now.Unix(), lacks: d.marks.now}
		d.entries[key] = e
		d.marks.count(key, e.lacks, 1)
		d.countSince(e.since, 1)
		d.many = d.many || len(d.entries) > 1000
	}
	return e
}

func (d *Keys) prune(key event.Key, e *entry) {
	if e.uid != "" || len(e.tombstones) > 0 || e.outlived != 0 {
		return
	}
	d.countSince(e.since, -1)
	d.marks.count(key, e.lacks, -1)
	if delete(d.entries, key); len(d.entries) == 0 && d.many {
		d.entries, d.many = map[event.Key]*entry{}, false // a map never shrinks
	}
}

// forget drops the reported state, and leaves the tombstones.
func (d *Keys) forget(key event.Key, e *entry) {
	d.removeFromFirstSync(key, e)
	*e = entry{since: e.since, lacks: e.lacks, tombstones: e.tombstones}
}

// has reports whether there is a tombstone of a UID.
func (e *entry) has(uid string) bool {
	return slices.ContainsFunc(e.tombstones, func(t event.Tombstone) bool { return t.UID == uid })
}

func (e *entry) drop(where func(event.Tombstone) bool) {
	kept := e.tombstones[:0]
	for _, t := range e.tombstones {
		if !where(t) {
			kept = append(kept, t)
		}
	}
	clear(e.tombstones[len(kept):])
	e.tombstones = kept
}
