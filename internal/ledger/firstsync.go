package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Include adds the state o to a first sync that began after the informer reported o. If the key is already
// dirty, the informer might have reported a later state or a delete since o was read. Include keeps such a
// report.
func (l *Ledger) Include(key event.Key, o *event.Object, now time.Time) {
	l.change(key, now, func(t *table, d *dirty) {
		if d.has(string(o.UID)) {
			return
		}
		if d.uid == "" {
			d.uid, d.version, d.number, d.observed = string(o.UID), o.ResourceVersion, l.reports.Add(1), now
			d.last, d.boundary = l.now, o.ResourceVersion
		}
		d.cause = event.CauseSnapshot
		t.addToFirstSync(d)
	})
}

// MarkUnpublishable marks the current state of a key as unpublishable. A first sync does not wait
// for an unpublishable state.
func (l *Ledger) MarkUnpublishable(key event.Key) {
	l.changeDirty(key, func(t *table, r *record) {
		d := r.others().dirty
		d.unpublishable = true
		t.removeFromFirstSync(d)
	})
}

// FirstSyncLeft returns the number of keys that the first sync of a resource waits for. The first
// sync waits until the bus has the state of each of its objects. If an object is deleted or deselected
// before then, the first sync waits until no publish of the key can be in flight, because the bus
// might still store a snapshot event of the object.
func (l *Ledger) FirstSyncLeft(gr schema.GroupResource) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.tables[gr]; t != nil {
		return t.awaited
	}
	return 0
}

// ForgetFirstSyncs ends every first sync.
func (l *Ledger) ForgetFirstSyncs() {
	l.eachDirty(all, func(_ event.Key, t *table, d *dirty) { t.removeFromFirstSync(d) })
}

func (t *table) addToFirstSync(d *dirty) {
	d.firstSync = true
	if !d.awaited {
		d.awaited = true
		t.awaited++
	}
}

func (t *table) removeFromFirstSync(d *dirty) {
	d.firstSync = false
	t.answered(d)
}

// answered ends the first sync's wait for a key whose state no longer belongs to the first sync.
func (t *table) answered(d *dirty) {
	if d.awaited && !d.firstSync {
		d.awaited = false
		t.awaited--
	}
}
