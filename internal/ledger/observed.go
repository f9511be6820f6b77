package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// dirty holds the reports about a key until the bus has its state.
type dirty struct {
	uid, version string // of the last reported state; "" for none
	number       uint64 // of the report of that state, see [Ledger.Reports]
	since        int64  // when the first change that the bus lacks was reported, in seconds of Unix time
	cause        event.Cause
	observed     time.Time
	firstSync    bool          // the reported state belongs to the first sync
	awaited      bool          // the first sync waits for the key, see [Ledger.FirstSyncLeft]
	before       *event.Object // the state that the bus is known to have; nil for none
	tombstones   []event.Tombstone
	outlived     *event.Outlived // see [event.View.Outlived]; nil for none

	unpublishable bool // see [event.View.Unpublishable]

	lacks, last generation // of the first change that the bus lacks, and of the last reported state
	boundary    string     // the version of the first state that was reported in the generation last
}

// Observe records a reported state of an object and the previous state, which may be nil. If no
// state of the key was pending, the bus has the previous state.
func (l *Ledger) Observe(key event.Key, before, o *event.Object, cause event.Cause, firstSync bool, now time.Time) {
	l.change(key, now, func(t *table, d *dirty) {
		if d.uid == "" {
			d.before = before
		}
		d.unpublishable = d.unpublishable && d.uid == string(o.UID) && d.version == o.ResourceVersion
		d.uid, d.version, d.number, d.cause, d.observed = string(o.UID), o.ResourceVersion, l.reports.Add(1), cause, now
		if d.last != l.now {
			d.last, d.boundary = l.now, o.ResourceVersion
		}
		// If an object with a tombstone is reported again, either the object has returned to the
		// selection, or etcd was restored.
		d.drop(func(t event.Tombstone) bool { return t.UID == d.uid })
		if firstSync {
			t.addToFirstSync(d)
		}
	})
}

// AddTombstone records that a UID is gone. If an inferred delete left a tombstone without a last
// state, a later notification adds that state.
func (l *Ledger) AddTombstone(key event.Key, gone event.Tombstone) {
	l.change(key, gone.Observed, func(t *table, d *dirty) {
		d.drop(func(old event.Tombstone) bool {
			if old.UID != gone.UID {
				return false
			}
			// A delete takes precedence over a deselection.
			deselected, confirmed, contradicts := gone.Deselected && old.Deselected, gone.Confirmed || old.Confirmed, old.Contradicts
			if gone.Confirmed {
				contradicts = gone.Contradicts
			}
			if gone.Object == nil {
				gone = old
			}
			gone.Deselected, gone.Confirmed, gone.Contradicts = deselected, confirmed, contradicts
			return true
		})
		gone.Number = l.reports.Add(1)
		d.tombstones = append(d.tombstones, gone)
		d.outlived = nil
		if d.uid == gone.UID {
			t.forget(d)
		}
	})
}

// MarkOutlived records that a consistent read confirmed the informers' view of a key, although the
// bus has a delete or a foreign event.
func (l *Ledger) MarkOutlived(key event.Key, is event.Outlived, now time.Time) {
	l.change(key, now, func(_ *table, d *dirty) { d.outlived = &is })
}

// read calls f with the dirty part of a key, unless the key is clean.
func (l *Ledger) read(key event.Key, f func(*dirty)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if d := l.find(key).others().dirty; d != nil {
		f(d)
	}
}

// IsDirty reports whether the bus might lack the current state of a key.
func (l *Ledger) IsDirty(key event.Key) (is bool) {
	l.read(key, func(*dirty) { is = true })
	return is
}

// DirtySince returns the time, in whole seconds, when the informers reported the first change of a
// key that the bus might lack. It returns false if the bus has the current state.
func (l *Ledger) DirtySince(key event.Key) (since time.Time, is bool) {
	l.read(key, func(d *dirty) { since, is = time.Unix(d.since, 0), true })
	return since, is
}

// IsMissing reports whether an object can be published but the bus doesn't show it as existing.
func (l *Ledger) IsMissing(key event.Key) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.find(key)
	d := r.others().dirty
	return !r.acked().Live() && (d == nil || !d.unpublishable)
}

// HasTombstone reports whether a key has a tombstone.
func (l *Ledger) HasTombstone(key event.Key) (has bool) {
	l.read(key, func(d *dirty) { has = len(d.tombstones) > 0 })
	return has
}

// Outlived returns what [Ledger.MarkOutlived] recorded, or the zero value if it recorded nothing.
func (l *Ledger) Outlived(key event.Key) (is event.Outlived) {
	l.read(key, func(d *dirty) { is = d.confirmed() })
	return is
}

func (d *dirty) confirmed() event.Outlived {
	if d.outlived == nil {
		return event.Outlived{}
	}
	return *d.outlived
}

// Describe copies the record of a key into a view. The caller must have set v.Live.
func (l *Ledger) Describe(key event.Key, v *event.View) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.find(key)
	of := r.others()
	v.Acked = r.acked()
	v.Attempted = of.attempts.uidFor(v.Acked)
	if of.attempts != nil {
		v.Unanswered = of.attempts.change
	}
	if d := of.dirty; d != nil {
		v.Tombstones = append([]event.Tombstone(nil), d.tombstones...)
		v.Outlived, v.Unpublishable = d.confirmed(), d.unpublishable
		if v.Live != nil && d.uid == string(v.Live.UID) {
			v.Cause, v.Observed, v.FirstSync, v.Before = d.cause, d.observed, d.firstSync, d.before
		}
	}
}

// Abandon forgets the reported states of all matching keys after their informer stopped. shown
// contains the UIDs of the selected objects that the informer shows. If such an object has a
// tombstone, it returned to the selection, and the informer stopped before it reported the return.
// Abandon drops that tombstone, unless a consistent read proved the delete. It keeps all other
// tombstones, because they remain true.
func (l *Ledger) Abandon(matches func(event.Key) bool, shown map[event.Key]string) {
	l.eachDirty(matches, func(k event.Key, of *table, d *dirty) {
		of.forget(d)
		if uid, ok := shown[k]; ok {
			d.drop(func(t event.Tombstone) bool { return t.UID == uid && (t.Deselected || !t.Confirmed) })
		}
	})
}

// ForgetObject drops what the informers reported about an object: the last reported state, and the
// object's tombstone. The informers call it when they show an object that they do not report, because the
// object is not selected, or because this process is a standby.
func (l *Ledger) ForgetObject(key event.Key, uid string) {
	l.changeDirty(key, func(t *table, r *record) {
		d := r.others().dirty
		t.forget(d)
		d.drop(func(t event.Tombstone) bool { return t.UID == uid })
	})
}

// ForgetOthers forgets the tombstones of a key whose UIDs the bus cannot show. The caller has found that the
// object with the last event stays on the bus, so no event of the key follows. If the last known event is a
// removal, a publish can be in flight, so ForgetOthers keeps the tombstones.
func (l *Ledger) ForgetOthers(key event.Key) {
	l.changeDirty(key, func(_ *table, r *record) {
		if is := r.acked(); is.Live() {
			r.dropUnshown(is, r.others().attempts)
		}
	})
}

// Forget forgets all reports about the matching keys, including their tombstones.
func (l *Ledger) Forget(matches func(event.Key) bool) {
	l.eachDirty(matches, func(_ event.Key, t *table, d *dirty) {
		t.forget(d)
		d.tombstones = nil
	})
}

// ForgetBefore forgets the changes that were reported before a time: the states, the tombstones, and
// how long the bus has lacked them.
func (l *Ledger) ForgetBefore(at time.Time) {
	l.eachDirty(all, func(_ event.Key, t *table, d *dirty) {
		d.drop(func(t event.Tombstone) bool { return t.Observed.Before(at) })
		if d.observed.Before(at) {
			t.forget(d)
		}
		l.moveSince(d, max(d.since, at.Unix()))
	})
}

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

// forget drops the reported state and keeps the tombstones.
func (t *table) forget(d *dirty) {
	*d = dirty{since: d.since, lacks: d.lacks, tombstones: d.tombstones, awaited: d.awaited}
}

// has reports whether a UID has a tombstone.
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

// Oldest returns the time, in whole seconds, when the oldest change that the bus lacks was reported.
// It returns the zero time if the bus lacks none. The call is cheap, because it visits seconds
// instead of keys.
func (l *Ledger) Oldest() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.since) == 0 {
		return time.Time{}
	}
	return time.Unix(slices.Min(slices.Collect(maps.Keys(l.since))), 0)
}

// Between returns the number of dirty keys whose oldest missing change was reported between two
// times, in whole seconds.
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
