package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// dirty is what is known of a key until the bus has its state.
type dirty struct {
	uid, version string // of the last reported state; "" for none
	since        int64  // when the first change that the bus lacks was reported, in seconds of Unix time
	cause        event.Cause
	observed     time.Time
	firstSync    bool          // the reported state belongs to the first sync
	awaited      bool          // the first sync waits for the key, see [Ledger.FirstSyncLeft]
	before       *event.Object // the state that the bus is known to have; nil for none
	tombstones   []event.Tombstone
	outlived     uint64 // see [event.View]

	unpublishable bool // see [event.View]

	lacks, last generation // see [Ledger.Mark]
	boundary    string     // the version of the first state that was reported in last
}

// Observe records a reported state of an object, and the previous state, which may be nil. If the
// key was clean, the bus has the previous state.
func (l *Ledger) Observe(key event.Key, before, o *event.Object, cause event.Cause, firstSync bool, now time.Time) {
	l.change(key, now, func(t *table, d *dirty) {
		if d.uid == "" {
			d.before = before
		}
		d.unpublishable = d.unpublishable && d.uid == string(o.UID) && d.version == o.ResourceVersion
		d.uid, d.version, d.cause, d.observed = string(o.UID), o.ResourceVersion, cause, now
		if d.last != l.now {
			d.last, d.boundary = l.now, o.ResourceVersion
		}
		// An object that was deleted and exists is back: it left the selection and returned, or
		// etcd was restored.
		d.drop(func(t event.Tombstone) bool { return t.UID == d.uid })
		if firstSync {
			t.addToFirstSync(d)
		}
	})
}

// AddTombstone records that a UID is gone. The object of a notification replaces the
// missing one of an inferred delete.
func (l *Ledger) AddTombstone(key event.Key, gone event.Tombstone) {
	l.change(key, gone.Observed, func(t *table, d *dirty) {
		d.drop(func(old event.Tombstone) bool {
			if old.UID != gone.UID {
				return false
			}
			// A delete wins over a deselection.
			deselected, confirmed := gone.Deselected && old.Deselected, gone.Confirmed || old.Confirmed
			if gone.Object == nil {
				gone = old
			}
			gone.Deselected, gone.Confirmed = deselected, confirmed
			return true
		})
		d.tombstones = append(d.tombstones, gone)
		d.outlived = 0
		if d.uid == gone.UID {
			t.forget(d)
		}
	})
}

// MarkOutlived records that the informers are right about a key, although the bus has a delete or
// a foreign event at a position.
func (l *Ledger) MarkOutlived(key event.Key, position uint64, now time.Time) {
	l.change(key, now, func(_ *table, d *dirty) { d.outlived = position })
}

// read calls f with the dirty part of a key, unless the key is clean.
func (l *Ledger) read(key event.Key, f func(*dirty)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if d := l.find(key).others().dirty; d != nil {
		f(d)
	}
}

// IsDirty reports whether the bus may lack the present state of a key.
func (l *Ledger) IsDirty(key event.Key) (is bool) {
	l.read(key, func(*dirty) { is = true })
	return is
}

// DirtySince returns when the first change of a key that the bus may lack was reported, in whole
// seconds. It returns false if the bus has the present state.
func (l *Ledger) DirtySince(key event.Key) (since time.Time, is bool) {
	l.read(key, func(d *dirty) { since, is = time.Unix(d.since, 0), true })
	return since, is
}

// IsMissing reports whether the bus doesn't show an object as existing, and the object can be
// published.
func (l *Ledger) IsMissing(key event.Key) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.find(key)
	d := r.others().dirty
	return !r.acked().Live() && (d == nil || !d.unpublishable)
}

// HasTombstone reports whether there is a tombstone of a key.
func (l *Ledger) HasTombstone(key event.Key) (has bool) {
	l.read(key, func(d *dirty) { has = len(d.tombstones) > 0 })
	return has
}

// Outlived returns the position of [Ledger.MarkOutlived], 0 for none.
func (l *Ledger) Outlived(key event.Key) (position uint64) {
	l.read(key, func(d *dirty) { position = d.outlived })
	return position
}

// Describe adds to a view what the ledger knows of a key.
func (l *Ledger) Describe(key event.Key, v *event.View) {
	l.read(key, func(d *dirty) {
		v.Tombstones = append([]event.Tombstone(nil), d.tombstones...)
		v.Outlived, v.Unpublishable = d.outlived, d.unpublishable
		if v.Live != nil && d.uid == string(v.Live.UID) {
			v.Cause, v.Observed, v.FirstSync, v.Before = d.cause, d.observed, d.firstSync, d.before
		}
	})
}

// Abandon forgets the reported states of the keys that match, after their informer stopped.
// Tombstones stay, because they remain true.
func (l *Ledger) Abandon(matches func(event.Key) bool) { l.eachDirty(matches, (*table).forget) }

// Forget forgets everything that was reported of the keys that match, tombstones included.
func (l *Ledger) Forget(matches func(event.Key) bool) {
	l.eachDirty(matches, func(t *table, d *dirty) {
		t.forget(d)
		d.tombstones = nil
	})
}

// ForgetBefore forgets everything that was observed before a time.
func (l *Ledger) ForgetBefore(at time.Time) {
	l.eachDirty(all, func(t *table, d *dirty) {
		d.drop(func(t event.Tombstone) bool { return t.Observed.Before(at) })
		if d.observed.Before(at) {
			t.forget(d)
		}
	})
}

func all(event.Key) bool { return true }

// Dirty returns the dirty keys.
func (l *Ledger) Dirty() (keys []event.Key) {
	for gr := range l.DirtyByResource() {
		keys = append(keys, l.DirtyOf(gr)...)
	}
	return keys
}

// DirtyOf returns the dirty keys of a resource.
func (l *Ledger) DirtyOf(gr schema.GroupResource) (keys []event.Key) {
	records := l.recordsOf(gr)
	walk(&l.mu, records, func(n name, r record) bool {
		if r.others().dirty != nil {
			keys = append(keys, n.key(gr))
		}
		return true
	})
	return keys
}

// forget drops the reported state, and leaves the tombstones.
func (t *table) forget(d *dirty) {
	*d = dirty{since: d.since, lacks: d.lacks, tombstones: d.tombstones, awaited: d.awaited}
}

// has reports whether there is a tombstone of a UID.
func (d *dirty) has(uid string) bool {
	return slices.ContainsFunc(d.tombstones, func(t event.Tombstone) bool { return t.UID == uid })
}

func (d *dirty) drop(where func(event.Tombstone) bool) {
	kept := d.tombstones[:0]
	for _, t := range d.tombstones {
		if !where(t) {
			kept = append(kept, t)
		}
	}
	clear(d.tombstones[len(kept):])
	d.tombstones = kept
}

// DirtyLen returns the number of dirty keys.
func (l *Ledger) DirtyLen() (n int) {
	for _, of := range l.DirtyByResource() {
		n += of
	}
	return n
}

// DirtyByResource returns the number of dirty keys of each resource that has any.
func (l *Ledger) DirtyByResource() map[schema.GroupResource]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := map[schema.GroupResource]int{}
	for gr, t := range l.tables {
		if t.dirty > 0 {
			n[gr] = t.dirty
		}
	}
	return n
}

// Oldest returns when the oldest change that the bus lacks was reported, in whole seconds; the
// zero time if there is none. It is cheap: it looks at seconds, not at keys.
func (l *Ledger) Oldest() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.since) == 0 {
		return time.Time{}
	}
	return time.Unix(slices.Min(slices.Collect(maps.Keys(l.since))), 0)
}

// Between returns the number of keys that became dirty between two times, in whole seconds.
func (l *Ledger) Between(from, to time.Time) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for second, count := range l.since {
		if second >= from.Unix() && second <= to.Unix() {
			n += count
		}
	}
	return n
}
