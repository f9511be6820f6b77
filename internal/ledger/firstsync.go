package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
)

// Include adds a state to the first sync, which begins after the state was reported. If the key
// is dirty already, a later state or a delete may have been reported since o was read, and stays.
func (l *Ledger) Include(key event.Key, o *event.Object, now time.Time) {
	l.change(key, now, func(t *table, d *dirty) {
		if d.has(string(o.UID)) {
			return
		}
		if d.uid == "" {
			d.uid, d.version, d.observed = string(o.UID), o.ResourceVersion, now
			d.last, d.boundary = l.now, o.ResourceVersion
		}
		d.cause = event.CauseSnapshot
		t.addToFirstSync(d)
	})
}

// MarkUnpublishable marks the present state of a key as unpublishable. A first sync is complete
// without it.
func (l *Ledger) MarkUnpublishable(key event.Key) {
	l.changeDirty(key, func(t *table, d *dirty) {
		d.unpublishable = true
		t.removeFromFirstSync(d)
	})
}

// FirstSyncLeft returns the number of keys that the first sync of a resource waits for. It waits
// for each of its objects until the bus has its state. If the object is gone or deselected by
// then, it waits until the next answer about the key, because the bus may be about to store a
// snapshot event of it.
func (l *Ledger) FirstSyncLeft(gr schema.GroupResource) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if t := l.tables[gr]; t != nil {
		return t.awaited
	}
	return 0
}

// ForgetFirstSyncs ends every first sync.
func (l *Ledger) ForgetFirstSyncs() { l.eachDirty(all, (*table).removeFromFirstSync) }

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

// answered ends the wait of the first sync for a key whose state does not belong to it any more.
func (t *table) answered(d *dirty) {
	if d.awaited && !d.firstSync {
		d.awaited = false
		t.awaited--
	}
}
